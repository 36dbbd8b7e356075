// Saving what comes in: straight to the disk where the browser lets a page do
// that, else by way of a blob, which it keeps on disk itself when it is large.

/** Asks where to save, and gives a sink with write, close and abort; null when the person thought better of it. */
export async function openSink(name) {
  if (window.showSaveFilePicker) {
    try {
      const handle = await window.showSaveFilePicker({ suggestedName: name });
      const file = await handle.createWritable();
      return { write: (chunk) => file.write(chunk), close: () => file.close(), abort: () => file.abort().catch(() => {}) };
    } catch (err) {
      if (err.name === 'AbortError') return null;
      // A name or a place the picker does not take: the other way has none of that.
    }
  }
  const parts = [];
  return {
    write: (chunk) => { parts.push(chunk); },
    close: () => save(new Blob(parts), name),
    abort() {},
  };
}

function save(blob, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  // The download holds the blob from when it started, which is not yet.
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
