// Looks for bytes in the memory of a running process, as root of its host can. Effects: reads /proc of that process.

import { closeSync, openSync, readFileSync, readSync } from 'node:fs'

const pageBytes = 4096
const pagesAtOnce = 65_536
/** proc_pid_pagemap(5): the page is in memory, or swapped. */
const presentBits = 0xc0
const entryBytes = 8

/** Whether a resident page of the process holds `text` in UTF-8, as JavaScript keeps ASCII text. */
export function memoryHolds(pid: number, text: string): boolean {
  const needle = Buffer.from(text)
  const pagemap = openSync(`/proc/${pid}/pagemap`, 'r')
  const memory = openSync(`/proc/${pid}/mem`, 'r')
  try {
    return readableRanges(pid).some(({ start, end }) => rangeHolds({ pagemap, memory }, { start, end }, needle))
  } finally {
    closeSync(pagemap)
    closeSync(memory)
  }
}

type Range = { readonly start: number; readonly end: number }

function readableRanges(pid: number): Range[] {
  const lines = readFileSync(`/proc/${pid}/maps`, 'utf8').split('\n')
  return lines.flatMap(line => {
    const [, start, end, rest = ''] = /^([0-9a-f]+)-([0-9a-f]+) r(.*)$/.exec(line) ?? []
    if (start === undefined || end === undefined || /\[v(var|syscall)/.test(rest)) return []
    return [{ start: Number.parseInt(start, 16), end: Number.parseInt(end, 16) }]
  })
}

function rangeHolds(fds: { pagemap: number; memory: number }, { start, end }: Range, needle: Buffer): boolean {
  const entries = Buffer.alloc(pagesAtOnce * entryBytes)
  // Tail of the previous pages, where the text may begin.
  let tail = Buffer.alloc(0)
  for (let at = start; at < end; at += pagesAtOnce * pageBytes) {
    const pages = Math.min(pagesAtOnce, (end - at) / pageBytes)
    const got = readSync(fds.pagemap, entries, 0, pages * entryBytes, (at / pageBytes) * entryBytes)
    for (let page = 0; page < got / entryBytes; page += 1) {
      const isPresent = ((entries[page * entryBytes + entryBytes - 1] ?? 0) & presentBits) !== 0
      const bytes = isPresent ? pageAt(fds.memory, at + page * pageBytes) : null
      if (bytes === null) {
        tail = Buffer.alloc(0)
        continue
      }
      const whole = Buffer.concat([tail, bytes])
      if (whole.includes(needle)) return true
      tail = whole.subarray(whole.length - needle.length)
    }
  }
  return false
}

/** Null if it is gone by now. */
function pageAt(memory: number, address: number): Buffer | null {
  const page = Buffer.alloc(pageBytes)
  try {
    return readSync(memory, page, 0, pageBytes, address) === pageBytes ? page : null
  } catch {
    return null
  }
}
