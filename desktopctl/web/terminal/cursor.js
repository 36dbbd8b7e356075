// follow puts area, in which an input method shows what it has so far, over the
// cursor of term.
export function follow(term, box, area) {
  const { width, height } = box.querySelector('.xterm-screen').getBoundingClientRect();
  const buffer = term.buffer?.active; // since xterm.js 4
  const x = buffer ? buffer.cursorX : term._core.buffer.x;
  const y = buffer ? buffer.cursorY : term._core.buffer.y;
  area.style.left = `${Math.min((x * width) / term.cols, width - 120)}px`;
  area.style.top = `${(y * height) / term.rows}px`;
}
