const SCROLLBAR = 14;

// fit makes term as large as box has room for and says whether that changed
// anything. The size of a cell is read off the screen that is shown, which
// works with every version of xterm.js.
export function fit(term, box) {
  const screen = box.querySelector('.xterm-screen');
  if (!screen) return false;
  const shown = screen.getBoundingClientRect();
  const style = getComputedStyle(box);
  const width = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - SCROLLBAR;
  const height = box.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
  // A frame that is hidden has no size, and the shell keeps the one it has.
  if (!(shown.width > 0 && shown.height > 0 && width > 0 && height > 0)) return false;
  const cols = Math.max(2, Math.floor(width / (shown.width / term.cols)));
  const rows = Math.max(1, Math.floor(height / (shown.height / term.rows)));
  if (cols === term.cols && rows === term.rows) return false;
  term.resize(cols, rows);
  return true;
}
