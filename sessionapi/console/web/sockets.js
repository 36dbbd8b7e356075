// Who listens in a sandbox, from the kernel's own tables, which are files there like any other.

/** The tables: TCP over IPv4 and IPv6. */
export const TABLES = ['/proc/net/tcp', '/proc/net/tcp6'];

const LISTEN = '0A';

/** The listening ports of one table, as [{port, everywhere}]: everywhere, or on the loopback only. */
export function listening(table) {
  const out = [];
  for (const line of table.split('\n').slice(1)) {
    const [, local, , state] = line.trim().split(/\s+/);
    const [address, port] = (local ?? '').split(':');
    if (state !== LISTEN || !/^[0-9A-F]{4}$/.test(port ?? '')) continue;
    out.push({ port: parseInt(port, 16), everywhere: /^0+$/.test(address) });
  }
  return out;
}
