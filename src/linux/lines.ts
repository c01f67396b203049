// Cuts a byte stream into LF-terminated lines with a bounded memory. Pure.

type LineSplitter = {
  readonly push: (chunk: Uint8Array) => void
}

type LineSplitterOptions = {
  /** Longest line, without its LF. */
  readonly lineBytesMax: number
  /** A line without its LF. */
  readonly onLine: (line: Uint8Array) => void
  /** Once per line over the limit; its bytes are dropped up to the next LF. */
  readonly onOverlong: () => void
}

export function createLineSplitter({ lineBytesMax, onLine, onOverlong }: LineSplitterOptions): LineSplitter {
  let parts: Uint8Array[] = []
  let heldBytes = 0
  let dropping = false

  const hold = (part: Uint8Array) => {
    if (dropping || part.length === 0) return
    if (heldBytes + part.length > lineBytesMax) {
      dropping = true
      parts = []
      heldBytes = 0
      onOverlong()
      return
    }
    // A copy: the chunk may be a view of a buffer that the socket uses again.
    parts.push(part.slice())
    heldBytes += part.length
  }
  const end = () => {
    const line = dropping ? null : Buffer.concat(parts)
    parts = []
    heldBytes = 0
    dropping = false
    if (line !== null) onLine(line)
  }

  return {
    push: chunk => {
      let from = 0
      for (let at = chunk.indexOf(lf); at !== -1; at = chunk.indexOf(lf, from)) {
        hold(chunk.subarray(from, at))
        end()
        from = at + 1
      }
      hold(chunk.subarray(from))
    },
  }
}

const lf = 0x0a
