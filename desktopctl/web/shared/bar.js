const NOTE = 2000;

// The bar is the one place for words, and there only while something is wrong.
export class Bar {
  constructor(element) {
    this.element = element;
    // Anywhere: with an action there is nothing else on the page to click.
    document.addEventListener('click', () => this.action?.());
  }

  get visible() {
    return !this.element.hidden;
  }

  // note puts up text for a moment, unless there is something to say already.
  note(text) {
    if (this.visible && !this.noting) return;
    this.show(text);
    this.noting = setTimeout(() => this.hide(), NOTE);
  }

  // watching says, to who tries to do something here, that this is for watching.
  watching() {
    for (const type of ['mousedown', 'touchstart', 'wheel', 'keydown', 'paste']) {
      document.addEventListener(type, () => this.note('View only'), { capture: true, passive: true });
    }
  }

  // show puts up text; with an action it can be clicked.
  show(text, action) {
    this.endNote();
    this.action = action;
    this.element.textContent = text;
    this.element.disabled = !action;
    this.element.hidden = false;
  }

  hide() {
    this.endNote();
    this.action = null;
    this.element.hidden = true;
  }

  endNote() {
    clearTimeout(this.noting);
    this.noting = 0;
  }
}
