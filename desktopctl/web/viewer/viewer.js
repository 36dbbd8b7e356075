// The desktop's page: noVNC's RFB without its user interface.
import RFB from 'novnc/core/rfb.js';
import { Bar } from '../shared/bar.js';
import { Link, looksOnly, option, socketURL } from '../shared/link.js';
import { Clipboard } from './clipboard.js';

const screen = document.getElementById('screen');
const viewOnly = looksOnly();
const clipboard = new Clipboard();
const link = new Link(new Bar(document.getElementById('bar')), open);

function open() {
  const rfb = new RFB(screen, socketURL('websockify'), { shared: true });
  rfb.viewOnly = viewOnly;
  rfb.scaleViewport = option('resize') !== 'off';
  rfb.background = 'transparent';

  // The canvas goes with the connection. Who was typing goes on typing; who
  // was elsewhere is not pulled here.
  const typing = screen.dataset.typing === 'yes';
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

// A canvas that is removed loses the focus without an event.
screen.addEventListener('focusin', () => (screen.dataset.typing = 'yes'));
screen.addEventListener('focusout', () => (screen.dataset.typing = 'no'));

link.start();
