import { word } from './word.js';

const show = w => { document.querySelector('#word').textContent = w; };
show(word);
if (import.meta.hot) import.meta.hot.accept('./word.js', m => show(m.word));
