// Goal: what was true of an organization when its request began must still be true when its build is accepted; and the
// files of a deleted one's builds go, whatever else is there.

import { expect, test } from 'bun:test'
import { readdirSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { randomNonce, source, startBuilds } from '../../../scripts/rigs/build/builds-service.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { listBuilds } from '../../../src/store/directory/build.query.ts'
import { listBuildsWithFiles } from '../../../src/store/directory/deletion.query.ts'
import { findOrganization, setOrganizationStatus } from '../../../src/store/directory/organization.query.ts'

test('goal: an organization that is suspended while its source arrives gets no build', async () => {
  await using rig = await startBuilds({ starts: false })
  const { db } = rig.store().directory
  const large = Buffer.concat([source, Buffer.alloc(600_000)])
  const text = JSON.stringify({ nonce: randomNonce(), source_data: large.toString('base64') })
  const incoming = join(rig.directory, 'builds/incoming')
  const head = `POST /build HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${rig.keys.acme}\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\nConnection: close\r\n\r\n`
  const socket = connect({ host: '127.0.0.1', port: Number(new URL(rig.url()).port) })
  let answer = ''
  socket.on('data', bytes => {
    answer += bytes.toString('latin1')
  })
  socket.write(head + text.slice(0, -40))
  await until('the upload is under way', 20_000, () => readdirSync(incoming).length > 0)
  setOrganizationStatus(db, { slug: 'acme', status: 'suspended' })
  socket.write(text.slice(-40))
  await until('it is answered', 20_000, () => answer.includes('\r\n\r\n'))
  socket.destroy()
  expect(answer).toStartWith('HTTP/1.1 403 ')
  expect(listBuilds(db, { limit: 10 })).toEqual([])
})

test('goal: files of one organization’s finished builds are removed, of no other and of none that runs', async () => {
  await using rig = await startBuilds()
  const { directory, hostId } = rig.store()
  const finished = await rig.submit()
  await rig.ended(finished)
  const organizationId = findOrganization(directory.db, 'acme')?.id ?? ''
  const left = () => listBuildsWithFiles(directory.db, { organizationId, hostId, limit: 10 })
  expect(left()).toEqual([finished])
  rig.builds().removeFilesOf('another')
  expect(left()).toEqual([finished])
  rig.builds().removeFilesOf(organizationId)
  rig.builds().removeFilesOf(organizationId)
  expect(left()).toEqual([])
  expect(rig.build(finished)).toMatchObject({ diskBytes: 0, removedAtMs: expect.any(Number) })
})
