// agent-browser drives the sandbox's browser. Of an http URL it drops the path,
// so it gets the WebSocket's address.
import path from 'node:path';
import { attempt, check, defer, facts, hidden, run } from './lib.mjs';

await attempt('agent-browser', async () => {
  const agent = async (...args) => String(await run(path.join(import.meta.dirname, 'node_modules/.bin/agent-browser'), ['--session', 'cubepod-try', ...args]));
  const { webSocketDebuggerUrl } = await (await fetch(`${facts.cdpUrl}json/version`)).json();
  defer(() => agent('close'));
  await agent('connect', webSocketDebuggerUrl);
  await agent('open', 'data:text/html,<title>try</title><input id=a><button id=b onclick="document.title=a.value">set</button>');
  await agent('fill', '#a', 'typed by an agent');
  await agent('click', '#b');
  const title = (await agent('get', 'title')).trim();
  check(title === 'typed by an agent', `the title is ${hidden(title)}`);
  // That it was the sandbox's browser, and none of its own.
  const tabs = await (await fetch(`${facts.cdpUrl}json/list`)).json();
  check(tabs.some(t => t.title === title), 'the sandbox\'s browser has no such tab');
});
