// Commands of operators on a host whose disk is full: a small file system of its own.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync, unlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { openStore } from '../../../src/store/db.ts'
import { listOrganizations } from '../../../src/store/directory/organization.query.ts'
import { listAudit } from '../../../src/store/ledger/audit.query.ts'
import { egressAdmin } from '../../rigs/instances/egress-admin.ts'
import { fillDisk, smallDisk } from '../../rigs/small-disk.ts'

inOwnNetns(
  import.meta.path,
  () => {
    // Goal: what cannot be recorded does not happen and says why; states stay readable; with room all is as before.
    test('a full disk', async () => {
      const parent = mkdtempSync(join(tmpdir(), 'strongroom-audit-disk-'))
      const dir = join(parent, 'state')
      {
        using _ = smallDisk(dir, 8)
        const store = openStore(join(dir, 'strongroom.db'))
        const { admin } = egressAdmin({}, store)
        const ask = async (method: string, path: string, body?: object) => {
          const headers = { 'content-type': 'application/json' }
          const sent = body === undefined ? {} : { body: JSON.stringify(body) }
          const request = new Request(`http://strongroom${path}`, { method, headers, ...sent })
          const response = await admin.handle(request, { uid: 0, gid: 0, pid: 1, socket: 'admin' })
          return [response.status, await response.json()] as const
        }
        const ballast = fillDisk(dir)
        // The write-ahead log may have room for some more; then each is refused.
        const slugs = Array.from({ length: 200 }, (_, at) => `org${at}`)
        const answers: (readonly [number, unknown])[] = []
        for (const slug of slugs) answers.push(await ask('POST', '/organizations', { slug }))
        const made = slugs.filter((_, at) => answers[at]?.[0] === 201)
        expect(made.length).toBeLessThan(200)
        expect(answers.at(-1)).toMatchObject([503, { error: { code: 'store.unwritable' } }])
        const known = listOrganizations(store.directory.db).map(({ slug }) => slug)
        const rows = listAudit(store.ledger.db, { after: null, sinceMs: null, actor: null, limit: 1_000 })
        const recorded = rows.map(row => row.arguments.slug)
        for (const slug of known.filter(slug => slug !== 'acme')) expect(recorded).toContain(slug)
        expect((await ask('GET', '/organizations'))[0]).toBe(200)
        unlinkSync(ballast)
        expect((await ask('POST', '/organizations', { slug: 'after' }))[0]).toBe(201)
        const [last] = listAudit(store.ledger.db, { after: null, sinceMs: null, actor: null, limit: 1 })
        expect(last).toMatchObject({ operation: 'org.create', arguments: { slug: 'after' }, result: 'ok' })
        store.close()
      }
      rmSync(parent, { recursive: true })
    })
  },
  { timeoutMs: 60_000 },
)
