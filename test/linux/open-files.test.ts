// Goal: whoever has a file open is found, under whatever name it was opened, and nobody else.

import { expect, test } from 'bun:test'
import { closeSync, mkdtempSync, openSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { processesWithOpen } from '../../src/linux/open-files.ts'

test('goal: a process counts from its open to its close, by any name of the file', () => {
  const dir = mkdtempSync(join(tmpdir(), 'srt-open-'))
  try {
    const [file, link, other] = [join(dir, 'file'), join(dir, 'link'), join(dir, 'other')]
    writeFileSync(file, 'x')
    writeFileSync(other, 'x')
    symlinkSync(file, link)
    expect(processesWithOpen(file)).toEqual([])
    const fd = openSync(link, 'r')
    expect([file, link, other].map(processesWithOpen)).toEqual([[process.pid], [process.pid], []])
    closeSync(fd)
    expect(processesWithOpen(file)).toEqual([])
    expect(processesWithOpen(join(dir, 'none'))).toEqual([])
  } finally {
    rmSync(dir, { recursive: true })
  }
})
