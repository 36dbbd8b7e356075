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

  // show puts up text; with an action it can be clicked.
  show(text, action) {
    this.action = action;
    this.element.textContent = text;
    this.element.disabled = !action;
    this.element.hidden = false;
  }

  hide() {
    this.action = null;
    this.element.hidden = true;
  }
}
