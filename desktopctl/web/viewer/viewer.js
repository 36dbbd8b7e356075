// The desktop's page: noVNC's RFB without its user interface.
import RFB from 'novnc/core/rfb.js';
import { Bar } from '../shared/bar.js';
import { Link, looksOnly, option, socketURL } from '../shared/link.js';
import { Clipboard } from './clipboard.js';
import { Field } from './field.js';
import { GlassKeyboard } from './glass.js';
import { Keys } from './keys.js';

const screen = document.getElementById('screen');
const viewOnly = looksOnly();
document.body.dataset.mode = viewOnly ? 'view' : 'control';
const clipboard = new Clipboard();
const field = viewOnly ? null : new Field(document.getElementById('field'), screen);
if (field) new GlassKeyboard(document.getElementById('keys'), field);
const bar = new Bar(document.getElementById('bar'));
if (viewOnly) bar.watching();
const link = new Link(bar, open);

function open() {
  const rfb = new RFB(screen, socketURL('websockify'), { shared: true });
  rfb.viewOnly = viewOnly;
  rfb.scaleViewport = option('resize') !== 'off';
  rfb.background = 'transparent';
  rfb.focusOnClick = false; // the field has the focus, and keeps it when the canvas goes

  rfb.addEventListener('connect', () => {
    link.opened();
    if (!field) return;
    new Keys(rfb);
    field.rfb = rfb;
    clipboard.attach(rfb);
  });
  rfb.addEventListener('disconnect', () => {
    if (field) field.rfb = null;
    clipboard.attach(null);
    link.closed();
  });
  rfb.addEventListener('clipboard', (event) => clipboard.copied(event.detail.text));
  rfb.addEventListener('desktopname', (event) => {
    document.title = event.detail.name || 'Desktop';
  });
}

link.start();
