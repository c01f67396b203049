import { describe, expect, test } from 'bun:test'
import { fileLinesMax, folderFaults, folderFilesMax, functionLinesMax, sizeFaults } from './sizes.ts'
import { readTree } from './tree.ts'

// Goal: no file and no function of the project has grown past what one can read in one go.
test('sizes of the sources', () => {
  expect(sizeFaults(readTree('src/**/*.{ts,tsx}', 'scripts/**/*.ts', 'test/**/*.ts'))).toEqual([])
})

// Goal: a folder of the project is read at a glance; one that grows past that gets rooms of its own.
test('folders', () => {
  expect(folderFaults(readTree('src/**/*.{ts,tsx}', 'scripts/**/*.ts', 'test/**/*.ts'))).toEqual([])
  const full = (count: number) => new Map(Array.from({ length: count }, (_, at) => [`src/a/${at}.ts`, '']))
  expect(folderFaults(full(folderFilesMax))).toEqual([])
  expect(folderFaults(full(folderFilesMax + 1))).toHaveLength(1)
})

describe('sizeFaults', () => {
  const file = (lines: number) => 'x\n'.repeat(lines)
  const body = (lines: number) => `function a() {\n${'  x\n'.repeat(lines - 2)}}\n`
  const faults = (path: string, text: string, exceptions = {}) => sizeFaults(new Map([[path, text]]), exceptions).length

  // Goal: the limits hold on both sides of the boundary.
  test('limits', () => {
    expect(faults('src/a.ts', file(fileLinesMax))).toBe(0)
    expect(faults('src/a.ts', file(fileLinesMax + 1))).toBe(1)
    expect(faults('src/a.ts', body(functionLinesMax))).toBe(0)
    expect(faults('src/a.ts', body(functionLinesMax + 1))).toBe(1)
    expect(faults('test/a.test.ts', body(functionLinesMax + 1))).toBe(0)
  })

  // Goal: an exception counts only with a reason, and only while its file is there and needs it.
  test('exceptions', () => {
    const reason = 'one table, each row on a line of its own'
    expect(faults('src/a.ts', file(500), { 'src/a.ts': { fileLinesMax: 500, reason } })).toBe(0)
    expect(faults('src/a.ts', file(501), { 'src/a.ts': { fileLinesMax: 500, reason } })).toBe(1)
    expect(faults('src/a.ts', file(500), { 'src/a.ts': { fileLinesMax: 500, reason: 'long' } })).toBe(1)
    expect(faults('src/a.ts', file(10), { 'src/b.ts': { fileLinesMax: 500, reason } })).toBe(1)
    expect(faults('src/a.ts', file(10), { 'src/a.ts': { fileLinesMax: 500, reason } })).toBe(1)
    expect(faults('src/a.ts', body(10), { 'src/a.ts': { functionLinesMax: 100, reason } })).toBe(1)
    expect(faults('src/a.ts', body(100), { 'src/a.ts': { functionLinesMax: 100, reason } })).toBe(0)
  })
})
