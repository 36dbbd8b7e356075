// A panel's path is only known when its link is made, and the edge takes it off
// again before Vite sees a request: BASE has Vite write it into its pages, and
// the plugin puts it back where Vite looks for it. On a host of its own the
// sandbox needs neither.
const base = process.env.BASE;

const behindPanel = {
  name: 'behind-panel',
  configureServer(server) {
    const back = req => { if (!req.url.startsWith(base)) req.url = base + req.url.slice(1); };
    server.middlewares.use((req, res, next) => { back(req); next(); });
    server.httpServer.prependListener('upgrade', back);
  },
};

export default {
  server: { host: '127.0.0.1', strictPort: true },
  ...(base && { base, plugins: [behindPanel] }),
};
