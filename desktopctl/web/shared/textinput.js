// Text often comes to a page without keys that say so: from an input method, a
// dead key, an emoji picker, dictation, a keyboard on glass. A TextInput takes
// it from a text area when it is final, and the area is empty again: what is
// wanted is what happened to the text, not the text.

const MODIFIERS = ['Shift', 'Control', 'Alt', 'AltGraph', 'Meta', 'CapsLock', 'NumLock'];
const BY_INPUT_METHOD = 229; // the key code of a key that an input method took

// A keyboard on glass deletes characters of the area, so there are always some.
const FILLER = '\u200b';
const EMPTY = FILLER.repeat(8);

// What is pasted and cut is the clipboard's business, and the text of a
// composition comes with its end: some browsers tell it twice.
const ELSEWHERE = ['insertFromPaste', 'deleteByCut', 'insertCompositionText', 'insertFromComposition', 'deleteCompositionText'];

export class TextInput {
  // text is told what was entered, erase how many characters were deleted, and
  // begin that a composition begins: the area has the class composing until
  // that ends. Others who listen at the area, like a terminal, hear of none of
  // this, and of no key that is part of it.
  constructor(area, { text, erase, begin }) {
    this.area = area;
    this.text = text;
    this.erase = erase;
    this.key = null; // the last that was pressed
    this.part = false; // it is part of a text
    this.dead = false; // a dead key waits for its letter

    const first = (type, take) =>
      document.addEventListener(type, (event) => event.target === area && take(event), true);
    const alone = (type, take) =>
      first(type, (event) => {
        event.stopPropagation();
        take(event);
      });
    first('keydown', (event) => {
      this.key = event;
      this.part = this.becomesText(event);
      if (this.part) event.stopPropagation();
    });
    // The character of any other key is for who listens to keys, and for them
    // only. It comes even after they have dealt with the key, when a program that
    // drives the browser sends it by itself.
    first('keypress', (event) => {
      if (!this.part) event.preventDefault();
      if (this.part || this.key?.defaultPrevented) event.stopPropagation();
    });
    alone('compositionstart', () => {
      area.classList.add('composing');
      begin?.();
    });
    alone('compositionupdate', () => {});
    alone('compositionend', ({ data }) => {
      area.classList.remove('composing');
      this.enter(data);
      this.reset();
    });
    first('beforeinput', (event) => event.isComposing || this.prepare());
    alone('input', (event) => event.isComposing || this.input(event));
    area.addEventListener('focus', () => this.reset());
    this.reset();
  }

  // becomesText says whether a key that is pressed is part of a text that comes.
  becomesText({ key, keyCode, isComposing, ctrlKey, metaKey }) {
    if (isComposing || keyCode === BY_INPUT_METHOD) return true;
    if (MODIFIERS.includes(key)) return false;
    const letter = [...key].length === 1 && !ctrlKey && !metaKey;
    const part = key === 'Dead' || (this.dead && letter);
    this.dead = key === 'Dead';
    return part;
  }

  // prepare clears away what others put into the area, like a terminal what is
  // selected, for the browser's menu to copy.
  prepare() {
    if (this.area.value.replaceAll(FILLER, '')) this.reset();
    this.fillers = this.count();
  }

  input({ inputType }) {
    if (!ELSEWHERE.includes(inputType)) {
      const deleted = this.fillers - this.count();
      if (deleted > 0) this.erase(deleted);
      this.enter(this.area.value);
    }
    this.reset();
  }

  enter(text) {
    const entered = text.replaceAll(FILLER, '');
    if (entered) this.text(entered);
  }

  count() {
    return this.area.value.split(FILLER).length - 1;
  }

  reset() {
    this.area.value = EMPTY;
    this.area.setSelectionRange(EMPTY.length, EMPTY.length);
  }
}
