// Goal: the files of a result have the names that other verifiers look for, and no artifact's name leads anywhere else.

import { expect, test } from 'bun:test'
import {
  artifactPath,
  BYPRODUCTS,
  isArtifactName,
  isComponent,
  RESULT_PATHS,
} from '../../../src/attest/provenance/paths.ts'

test('goal: the paths of a result, and those that its provenance binds in their order', () => {
  expect(RESULT_PATHS).toEqual({
    artifacts: 'artifacts',
    provenance: 'provenance.json',
    evidence: 'evidence.json',
    slsa: 'attestations/slsa.json',
    dsse: 'attestations/slsa.dsse.json',
    bundle: 'attestations/bundle.sigstore.json',
    sbom: 'attestations/sbom.cdx.json',
    log: 'build.log',
  })
  expect([...BYPRODUCTS]).toEqual(['slsa', 'dsse', 'bundle', 'sbom', 'log'])
  expect(artifactPath('bin/tool')).toBe('artifacts/bin/tool')
})

test('goal: a component is a plain name on every system', () => {
  const good = ['a', '~', 'a b', '.a', '...', 'a.', '!$&()+,;=@[]^_`{}', 'a'.repeat(255)]
  expect(good.filter(name => !isComponent(name))).toEqual([])
  const bad = ['', '.', '..', ' a', 'a ', ' ', 'a\n', 'a\0', 'a\x1f', 'a\x7f', 'ä', 'a'.repeat(256)]
  const reserved = [...'/\\:*?"<>|'].map(char => `a${char}b`)
  expect([...bad, ...reserved].filter(isComponent)).toEqual([])
})

test('goal: an artifact may stand in folders, up to 16 names and 1024 characters', () => {
  const deep = (count: number) => new Array(count).fill('a').join('/')
  const long = ['a'.repeat(255), 'b'.repeat(255), 'c'.repeat(255), 'd'.repeat(253)]
  expect(long.join('/').length).toBe(1021)
  const good = ['a', 'bin/tool', deep(16), `${long.join('/')}/ab`]
  expect(good.filter(name => !isArtifactName(name))).toEqual([])
  const bad = ['', '/a', 'a/', 'a//b', '../a', 'a/../b', 'a/.', 'a\\b', deep(17), `${long.join('/')}/abc`]
  expect(bad.filter(isArtifactName)).toEqual([])
})
