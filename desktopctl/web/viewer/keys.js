// A VNC server gives a character that the sandbox' layout lacks a key in the
// moment in which it presses that, which is too late for some programs: they
// type what the key was before. So the sandbox is asked for the key first, and
// what is pressed meanwhile waits in line.
const SHIFTS = [0xffe1, 0xffe2];

// What the layout's keys type, alone and with Shift. For a letter of the wrong
// case a server presses Caps Lock.
const LETTERS = ' abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ';
const PLAIN = `\`1234567890-=[]\\;',./${LETTERS}`;
const SHIFTED = `~!@#$%^&*()_+{}|:"<>?${LETTERS}`;

// The sandbox keeps about ninety such keys, those asked for last: what is
// known and what is new have to find room together.
const MOST = 40;

const isCharacter = (keysym) => (keysym >= 0x20 && keysym < 0xfd00) || (keysym >= 0x1000100 && keysym <= 0x110ffff);

// ask says whether it was of use: some VNC servers want to give the keys.
async function ask(keysyms) {
  try {
    const answer = await fetch(new URL('keys', location.href), { method: 'POST', body: JSON.stringify(keysyms) });
    return answer.ok;
  } catch {
    return false;
  }
}

export class Keys {
  // The connection's keys go through here from now on.
  constructor(rfb) {
    this.send = rfb.sendKey.bind(rfb);
    this.line = []; // what waits
    this.known = []; // keysyms that have a key, those asked for last at the end
    this.shift = new Set(); // of the keys for it, those held
    this.asking = false;
    this.useful = true;
    rfb.sendKey = (keysym, code, down) => {
      for (const press of down === undefined ? [true, false] : [down]) this.take(keysym, code, press);
    };
  }

  take(keysym, code, down) {
    if (SHIFTS.includes(keysym)) this.shift[down ? 'add' : 'delete'](keysym);
    const typed = keysym < 0x80 ? String.fromCharCode(keysym) : '';
    const there = typed && (this.shift.size ? SHIFTED : PLAIN).includes(typed);
    this.line.push({ keysym, code, down, lacks: down && isCharacter(keysym) && !there });
    if (!this.asking) this.advance();
  }

  async advance() {
    this.asking = true;
    while (this.line.length) {
      const wanted = new Set();
      for (const { keysym, lacks } of this.line) {
        if (this.useful && lacks && !this.known.includes(keysym)) wanted.add(keysym);
        if (wanted.size === MOST) break;
      }
      if (wanted.size) this.useful = await ask([...wanted]);
      const known = [...this.known, ...wanted];
      while (this.line.length && (!this.useful || !this.line[0].lacks || known.includes(this.line[0].keysym))) {
        const { keysym, code, down } = this.line.shift();
        this.send(keysym, code, down);
      }
      this.known = known.slice(-MOST);
    }
    this.asking = false;
  }
}
