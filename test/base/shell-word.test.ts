// Goal: what is printed as a command does what it says when it is pasted, whatever is in the name.

import { expect, test } from 'bun:test'
import { shellWord } from '../../src/base/shell-word.ts'

test('goal: plain names stay as they are; all others come out of a shell as they went in', () => {
  expect(shellWord('/var/lib/strongroom/vms/3f-a_b.c')).toBe('/var/lib/strongroom/vms/3f-a_b.c')
  for (const name of [
    '',
    'a b',
    "a'b",
    '$(id)',
    '`id`',
    'a;id',
    'a\nb',
    '*',
    '~',
    '\\',
    '"',
    'ä',
    '#x',
    '!x',
    '{a,b}',
  ]) {
    const { stdout } = Bun.spawnSync(['sh', '-c', `printf %s ${shellWord(name)}`])
    expect(stdout.toString()).toBe(name)
  }
})

test('goal: zsh replaces no word by the path of a command', () => {
  const words = ['=ls', '=', 'a:=ls', 'a=b', '--root=/a', 'far=https://far.example:8443/v1']
  expect(words.map(shellWord)).toEqual(["'=ls'", "'='", "'a:=ls'", ...words.slice(3)])
})
