// Debian's Jupyter Notebook runs a cell in a kernel: XSRF cookie, REST and a
// WebSocket with a Host and an Origin that it compares. It needs an own host.
import { attempt, browser, framed, ownHosts, panel, run, serve, sh, until } from './lib.mjs';

await attempt('jupyter', async () => {
  if (!await sh('command -v jupyter-notebook || true')) {
    await run('apt-get', ['install', '-y', '--no-install-recommends', 'jupyter-notebook', 'python3-ipykernel']);
  }
  const cell = { cell_type: 'code', execution_count: null, metadata: {}, outputs: [], source: ['print(6*7)'] };
  const notebook = { cells: [cell], metadata: { kernelspec: { display_name: 'Python 3', language: 'python', name: 'python3' } }, nbformat: 4, nbformat_minor: 2 };
  await sh(`mkdir -p /workspace/notebooks && cat > /workspace/notebooks/try.ipynb <<'EOF'\n${JSON.stringify(notebook)}\nEOF`);
  const log = await serve('exec jupyter-notebook --no-browser --ip=127.0.0.1 --port=8888 --NotebookApp.token= --NotebookApp.password= --NotebookApp.allow_remote_access=True --NotebookApp.tornado_settings=\'{"headers":{}}\'', '/workspace/notebooks');
  const url = await panel(8888);
  await until('Jupyter answers', async () => { if ((await fetch(`${url}api`)).ok) return true; throw new Error(await log()); });
  const own = await ownHosts();
  const { frame } = await framed(await browser(), `${own.url(url)}notebooks/try.ipynb`, own);
  await until('the kernel is ready', () => frame.evaluate(() => window.Jupyter?.notebook?.kernel?.is_connected()));
  await frame.evaluate(() => window.Jupyter.notebook.execute_all_cells());
  await until('the cell\'s output', () => frame.evaluate(() => document.querySelector('.output_text')?.innerText.trim() === '42'));
});
