// The clipboard, both ways, as far as the browser and the frame's allow
// attribute permit. All of it is best effort and silent.
//
// Some VNC servers take cut text in Latin-1 only; a character that has no place
// there arrives in the sandbox as "?".

const toLatin1 = (text) => text.replace(/[^\u0000-\u00ff]/gu, '?');

async function takesUnicode() {
  try {
    const response = await fetch(new URL('settings.json', location.href), { cache: 'no-store' });
    return (await response.json()).unicodeClipboard === true;
  } catch {
    return false;
  }
}

export class Clipboard {
  constructor() {
    this.rfb = null;
    this.unicode = null; // a promise, with a connection
    this.known = null; // what both sides have
    this.sent = null; // what the sandbox was given
    this.pending = null; // copied in the sandbox while this page had no focus
    addEventListener('focus', () => this.focused(), true);
    document.addEventListener('paste', (event) => this.paste(event.clipboardData?.getData('text/plain')));
  }

  // attach takes the connection, and asks what its server can: after a
  // reconnection that may be another one.
  attach(rfb) {
    this.rfb = rfb;
    if (rfb) this.unicode = takesUnicode();
  }

  // copied takes what was copied in the sandbox.
  async copied(text) {
    // x11vnc sends back what it was given, with its question marks.
    if (text === this.sent) return;
    this.known = text;
    this.pending = null;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      this.pending = text; // a browser writes only for the page in use
    }
  }

  async focused() {
    if (this.pending !== null) {
      await this.copied(this.pending);
      return;
    }
    if (!this.rfb) return;
    try {
      this.paste(await navigator.clipboard.readText());
    } catch {
      // not allowed, or nothing to read
    }
  }

  // paste gives text to the sandbox' clipboard; the person's Ctrl+V follows as
  // a key.
  async paste(text) {
    const rfb = this.rfb;
    if (!rfb || !text || text === this.known) return;
    this.known = text;
    if (await this.unicode) {
      this.sent = text;
    } else {
      this.sent = toLatin1(text);
      // libvncserver agrees to the extended clipboard and x11vnc then ignores
      // what comes by it, so noVNC has to forget that it was offered.
      rfb._clipboardServerCapabilitiesFormats = {};
    }
    rfb.clipboardPasteFrom(this.sent);
  }
}
