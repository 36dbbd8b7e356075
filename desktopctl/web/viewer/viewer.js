// The desktop's page: noVNC's RFB without its user interface.
import RFB from 'novnc/core/rfb.js';
import { Bar } from '../shared/bar.js';
import { Link, looksOnly, option, socketURL } from '../shared/link.js';
import { Clipboard } from './clipboard.js';

const screen = document.getElementById('screen');
const viewOnly = looksOnly();
document.body.dataset.mode = viewOnly ? 'view' : 'control';
const clipboard = new Clipboard();
let typing = false;
const link = new Link(new Bar(document.getElementById('bar')), open);

function open() {
  const rfb = new RFB(screen, socketURL('websockify'), { shared: true });
  rfb.viewOnly = viewOnly;
  rfb.scaleViewport = option('resize') !== 'off';
  rfb.background = 'transparent';

  // The canvas goes with the connection, and the focus with it. Who has been
  // typing goes on typing; who is elsewhere by now is not pulled here.
  rfb.addEventListener('connect', () => {
    link.opened();
    clipboard.attach(viewOnly ? null : rfb);
    if (typing && document.hasFocus()) rfb.focus();
  });
  rfb.addEventListener('disconnect', () => {
    clipboard.attach(null);
    link.closed();
  });
  rfb.addEventListener('clipboard', (event) => clipboard.copied(event.detail.text));
  rfb.addEventListener('desktopname', (event) => {
    document.title = event.detail.name || 'Desktop';
  });
}

screen.addEventListener('focusin', () => (typing = true));

link.start();
