// Server-sent events over fetch: EventSource sends no key.

// Both of the API's streams say that they live every 15 seconds. One that does
// not has lost its connection without a word.
const SILENCE_MS = 40000;

/**
 * Gives the events of an answer, as [name, data], until its end, which silence
 * is too. A stream that breaks throws.
 */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let timer = 0;
  const silence = () => {
    clearTimeout(timer);
    timer = setTimeout(() => reader.cancel(), SILENCE_MS);
  };
  try {
    for (;;) {
      silence();
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop();
      for (const block of blocks) {
        const event = /^event: (.*)$/m.exec(block)?.[1];
        const data = /^data: (.*)$/m.exec(block)?.[1];
        if (event && data) yield [event, JSON.parse(data)];
      }
    }
  } finally {
    clearTimeout(timer);
    reader.cancel().catch(() => {}); // it broke by itself
  }
}
