// Goal: a project with a command of its own is built without fetching anything, and its evidence
// lists no package.

import { describe, expect, test } from 'bun:test'
import { userInfo } from 'node:os'
import { archiveOf, type SourceFiles } from '../../../scripts/rigs/build/sources.ts'
import { cgroup2Root, startBuildVm, testLimits } from '../../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { filesOf } from '../../rigs/build/built.ts'

const noRoot = skipUnless(userInfo().uid === 0 && cgroup2Root() !== null, 'needs root and cgroup2')
const timeoutMs = 1_800_000

const project: SourceFiles = {
  'strongroom.build.toml':
    'command = ["make", "all"]\noutputs = ["out/tool", "docs"]\nname = "tool"\nversion = "1.2"\n',
  Makefile: 'all:\n\tmkdir -p out docs/a\n\tcc -o out/tool main.c\n\tcp main.c docs/a/main.c\n',
  'main.c': '#include <stdio.h>\nint main(void) { puts("made"); return 0; }\n',
  // A file with a lock beside it: the file for this service goes first.
  'go.mod': 'module example.com/a\n',
  'go.sum': '',
}

async function end(files: SourceFiles) {
  await using vm = await startBuildVm()
  const limits = { ...testLimits, buildSeconds: 900 }
  return await vm.build({ archive: archiveOf(files), limits, reproduce: true })
}

describe.skipIf(noRoot)('projects with strongroom.build.toml', () => {
  // Goal: the command's outputs are the artifacts, and the evidence says that nothing was fetched.
  test(
    'make',
    async () => {
      const ended = await end(project)
      expect(ended.result).toMatchObject({ status: 'ok' })
      const messages = ended.lines.map(({ msg }) => msg)
      expect(messages).toContain('strongroom.build.toml names no dependencies: nothing to fetch')
      expect(messages).toContain('tool: reproducible')
      const files = filesOf(ended)
      const json = (path: string) => JSON.parse(Buffer.from(files.get(path) ?? []).toString('utf8'))
      const { buildDefinition } = json('attestations/slsa.json').predicate
      expect(buildDefinition.buildType).toBe('urn:strongroom:build:make:v1')
      expect(buildDefinition.internalParameters).toMatchObject({ command: ['make', 'all'], networkPolicy: 'none' })
      expect(buildDefinition.resolvedDependencies.map(({ name }: { name: string }) => name)).toEqual([
        'source',
        'source-tree',
        'strongroom.build.toml',
      ])
      expect(json('attestations/sbom.cdx.json').components).toEqual([])
      const family = json('provenance.json').predicate.buildDefinition
      expect(family.resolvedDependencies.map(({ name }: { name: string }) => name)).toEqual(['source-tree'])
      expect(Object.keys(family.internalParameters.toolchain)).toEqual(['make', 'kettle'])
      const artifacts = [...files.keys()].filter(path => path.startsWith('artifacts/'))
      expect(artifacts).toEqual(['artifacts/main.c', 'artifacts/tool'])
    },
    timeoutMs,
  )

  // Goal: a mistake in the file or the command ends in a message with its cause.
  test.each([
    [
      'command = "make"\noutputs = ["a"]\n',
      /^source_invalid: strongroom\.build\.toml: command: must be a list of words/,
    ],
    ['command = ["false"]\noutputs = ["a"]\n', /^build_failed: false: exit code 1/],
    [
      'command = ["true"]\noutputs = ["a"]\n',
      /^no_artifacts: strongroom\.build\.toml: outputs: "a" does not exist after the build/,
    ],
    ['command = ["ln", "-s", "/etc/passwd", "a"]\noutputs = ["a"]\n', /^build_failed: artifact "?a"?: a link/],
    ['command = ["sh", "-c", "getent hosts crates.io || exit 7"]\noutputs = ["a"]\n', /^build_failed: sh: exit code 7/],
  ])(
    '%j',
    async (text, expected) => {
      const { result } = await end({ 'strongroom.build.toml': text })
      expect(result.status === 'failed' ? `${result.errorType}: ${result.error}` : result).toMatch(expected)
    },
    timeoutMs,
  )
})
