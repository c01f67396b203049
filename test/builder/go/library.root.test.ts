// Goal: a build takes Go's compiled standard library from the image, compiles only its own packages, and can change the
// library for no other build.

import { describe, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import * as fs from 'node:fs'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import { compileGoLibrary } from '../../../scripts/image/tree/go-library.ts'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { goTools } from '../../../scripts/rigs/build/go-tools.ts'
import { archiveOf } from '../../../scripts/rigs/build/sources.ts'
import { cgroup2Root, startBuildVm, testLimits } from '../../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { filesOf } from '../../rigs/build/built.ts'

const skipped = skipUnless(userInfo().uid === 0 && cgroup2Root() !== null, 'needs root and cgroup2')
const timeoutMs = 1_800_000

const project = {
  'go.mod': 'module example.com/app\n\ngo 1.19\n',
  'main.go': 'package main\n\n// int two(void);\nimport "C"\n\nimport "fmt"\n\nfunc main() { fmt.Println(C.two()) }\n',
  'two.c': 'int two(void) { return 2; }\n',
}

/** Digest of the names and bytes of all files below a directory. */
function digestOf(root: string): string {
  const all = createHash('sha256')
  for (const name of fs.readdirSync(root, { recursive: true, encoding: 'utf8' }).sort())
    if (fs.statSync(join(root, name)).isFile()) all.update(`${name}\0`).update(fs.readFileSync(join(root, name)))
  return all.digest('hex')
}

/** Reports whether it is a package that Go compiled, and no link to one. */
function isArchive(path: string): boolean {
  return fs.lstatSync(path).isFile() && fs.readFileSync(path).subarray(0, 8).toString('latin1') === '!<arch>\n'
}

describe.skipIf(skipped)('the compiled standard library', () => {
  // Goal: fmt and what it needs are not compiled again, C code is, and the program is the one that a build without the
  // library makes.
  test(
    'a program with C code, with the library and without it',
    async () => {
      const tools = await goTools()
      const before = digestOf(tools.library.from)
      const programs: Uint8Array[] = []
      const compiled: number[] = []
      for (const library of [tools.library, null]) {
        await using vm = await startBuildVm({ goTools: { ...tools, library } })
        const limits = { ...testLimits, buildSeconds: 900 }
        const end = await vm.build({ archive: archiveOf(project), limits })
        expect(end.result).toMatchObject({ status: 'ok' })
        programs.push(filesOf(end).get('artifacts/app') ?? new Uint8Array(0))
        const cache = join(vm.scratch, library === null ? 'build/go-build-1/0/.cache/go-build' : 'build/go-cache-1')
        const own = fs
          .readdirSync(cache, { recursive: true, encoding: 'utf8' })
          .filter(name => name.endsWith('-d') && isArchive(join(cache, name)))
        compiled.push(own.length)
      }
      const [withLibrary = new Uint8Array(0), without = new Uint8Array(0)] = programs
      expect(withLibrary.length).toBeGreaterThan(1_000_000)
      expect(Buffer.compare(withLibrary, without)).toBe(0)
      const [few = 0, many = 0] = compiled
      expect(few).toBe(1)
      expect(many).toBeGreaterThan(30)
      expect(digestOf(tools.library.from)).toBe(before)
    },
    timeoutMs,
  )

  // Goal: an image has the same bytes whenever it is built. The library of the rig is the first of the two.
  test.skipIf(skipUnless(runsAll, 'the library is compiled twice only by scripts/test --all'))(
    'the library compiled twice',
    async () => {
      const { library, binds, path } = await goTools()
      const target = join(fs.mkdtempSync('/tmp/strongroom-go-library-'), 'library')
      try {
        const system = [{ from: '/usr', to: '/usr' }, ...binds.slice(0, 1)]
        await compileGoLibrary({ binds: system, path: `${path}:/usr/bin`, target })
        expect(digestOf(target)).toBe(digestOf(library.from))
      } finally {
        fs.rmSync(join(target, '..'), { recursive: true })
      }
    },
    timeoutMs,
  )
})
