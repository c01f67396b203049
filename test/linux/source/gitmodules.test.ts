import { expect, test } from 'bun:test'
import { submodulesIn } from '../../../src/linux/source/gitmodules.ts'

// Goal: paths and addresses of submodules are read as git reads them, whatever the sections are called.
test('submodules', () => {
  const text = [
    '[submodule "a"]',
    '\tpath = libs/a',
    '\turl = https://git.example/a',
    '# path = no',
    '[submodule "b.path = x"]',
    'url = https://git.example/b\r',
    'path=b c\r',
    '[submodule "c"]',
    '  Path = "quoted \\"c\\""',
    '[submodule "url-only"]',
    'url = https://git.example/d',
    '[submodule "twice"]',
    'path = first',
    'path = last',
    'pathx = z',
    'path =',
    'path',
  ].join('\n')
  expect(submodulesIn(text, 16)).toEqual([
    { path: 'libs/a', url: 'https://git.example/a' },
    { path: 'b c', url: 'https://git.example/b' },
    { path: 'quoted "c"', url: null },
    { path: 'last', url: null },
  ])
  expect(submodulesIn('', 16)).toEqual([])
  expect(submodulesIn('[submodule "a"]\npath = a\n'.repeat(1000), 16)).toHaveLength(16)
})

// Goal: a .gitmodules with long runs of spaces is read in time that grows with its length alone.
test('submodules, and spaces without end', () => {
  const spaces = ' '.repeat(100_000)
  const startedAt = performance.now()
  expect(submodulesIn(`path = a${spaces}b\n`, 16)).toEqual([{ path: `a${spaces}b`, url: null }])
  expect(performance.now() - startedAt).toBeLessThan(1000)
})
