// noVNC hears the keys of its canvas and no text. So the focus is in a field
// that nobody sees: keys are handed on to the canvas, text is sent as the keys
// of its characters.
import keysyms from 'novnc/core/input/keysymdef.js';
import { TextInput } from '../shared/textinput.js';

const SHIFT = 0xffe1;
const KEYSYMS = { '\b': 0xff08, '\t': 0xff09, '\n': 0xff0d };

export class Field {
  constructor(element, screen) {
    this.element = element;
    this.screen = screen;
    this.rfb = null; // while connected
    element.hidden = false;
    new TextInput(element, {
      text: (text) => this.type(text),
      erase: (count) => this.type('\b'.repeat(count)),
    });
    for (const type of ['keydown', 'keyup']) element.addEventListener(type, (event) => this.key(event));
    // By a menu: Ctrl+V is a key.
    element.addEventListener('paste', (event) => this.type(event.clipboardData?.getData('text/plain') ?? ''));
    // Before noVNC, which keeps the browser from moving the focus by itself.
    for (const type of ['mousedown', 'touchstart']) {
      screen.addEventListener(type, (event) => this.at(event.touches?.[0] ?? event), { capture: true, passive: true });
    }
  }

  focus() {
    this.element.focus({ preventScroll: true });
  }

  // at puts the field where the person points, since that is where an input
  // method shows its choice.
  at({ clientX, clientY }) {
    this.element.style.left = `${Math.max(0, Math.min(clientX, innerWidth - 160))}px`;
    this.element.style.top = `${Math.max(0, Math.min(clientY, innerHeight - 40))}px`;
    this.focus();
  }

  key(event) {
    const canvas = this.screen.querySelector('canvas');
    if (!canvas) return;
    const { type, key, code, keyCode, location, repeat, ctrlKey, shiftKey, altKey, metaKey } = event;
    const copy = new KeyboardEvent(type, {
      key, code, keyCode, location, repeat, ctrlKey, shiftKey, altKey, metaKey,
      modifierAltGraph: event.getModifierState('AltGraph'),
      modifierCapsLock: event.getModifierState('CapsLock'),
      modifierNumLock: event.getModifierState('NumLock'),
      cancelable: true,
    });
    if (!canvas.dispatchEvent(copy)) event.preventDefault();
  }

  type(text) {
    for (const c of text.replaceAll('\r\n', '\n')) {
      // A server that sees a capital without Shift presses Caps Lock.
      const capital = c >= 'A' && c <= 'Z';
      if (capital) this.rfb?.sendKey(SHIFT, null, true);
      this.rfb?.sendKey(KEYSYMS[c] ?? keysyms.lookup(c.codePointAt(0)), null);
      if (capital) this.rfb?.sendKey(SHIFT, null, false);
    }
  }
}
