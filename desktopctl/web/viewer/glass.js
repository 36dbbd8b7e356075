// On a touch screen every tap would bring the keyboard up, over half of the
// picture. There it comes by a button, and goes by it.
export class GlassKeyboard {
  constructor(button, field) {
    this.button = button;
    this.field = field;
    const touch = matchMedia('(pointer: coarse)');
    const fit = () => {
      button.hidden = !touch.matches;
      this.show(!touch.matches);
    };
    touch.addEventListener('change', fit);
    fit();
    // The focus stays where it is until the click, which tells shown from not.
    button.addEventListener('pointerdown', (event) => event.preventDefault());
    button.addEventListener('click', () => {
      const shown = this.shown && document.activeElement === field.element;
      field.element.blur(); // browsers look at the mode when the focus comes
      this.show(!shown);
      field.focus();
    });
  }

  show(shown) {
    this.shown = shown;
    this.field.element.inputMode = shown ? 'text' : 'none';
    this.button.setAttribute('aria-pressed', String(shown));
  }
}
