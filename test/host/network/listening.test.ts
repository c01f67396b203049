// Goal: who listens where is read as ss prints it, whatever a process calls itself.

import { expect, test } from 'bun:test'
import { listListening, parseListening } from '../../../src/host/network/listening.ts'

test('goal: address, port and holder of each family', () => {
  const of = (protocol: string, local: string, users = '') =>
    parseListening(`${protocol} LISTEN 0 4096 ${local} 0.0.0.0:* ${users}`)
  expect(of('tcp', '0.0.0.0:22', 'users:(("sshd",pid=17,fd=3))')).toEqual({
    protocol: 'tcp',
    host: '0.0.0.0',
    port: 22,
    holders: [{ name: 'sshd', pid: 17 }],
  })
  expect(of('udp', '127.0.0.53%lo:53', 'users:(("systemd-resolve",pid=4,fd=1))')).toMatchObject({
    host: '127.0.0.53',
    port: 53,
  })
  expect(of('tcp', '[::]:443')).toEqual({ protocol: 'tcp', host: '::', port: 443, holders: [] })
  expect(of('tcp', '*:8441')).toMatchObject({ host: '*', port: 8441 })
  expect(of('tcp', '0.0.0.0:22', 'users:(("a\\"b,pid=1",pid=9,fd=3))')?.holders).toEqual([
    { name: 'a\\"b,pid=1', pid: 9 },
  ])
  expect(of('tcp', '0.0.0.0:22', 'users:(("a daemon",pid=1595,fd=3),("a daemon",pid=901,fd=3))')?.holders).toEqual([
    { name: 'a daemon', pid: 1595 },
    { name: 'a daemon', pid: 901 },
  ])
})

test('goal: other lines are passed over', () => {
  for (const line of ['', 'nl UNCONN 0 0 rtnl:kernel *', 'tcp LISTEN', 'tcp LISTEN 0 0 nonsense *'])
    expect(parseListening(line)).toBeNull()
})

test('goal: a socket of ours is found with our process', async () => {
  using server = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: { data: () => {} } })
  const found = (await listListening(10_000)).find(
    listening => listening.protocol === 'tcp' && listening.port === server.port,
  )
  expect(found).toMatchObject({ host: '127.0.0.1', holders: [{ pid: process.pid }] })
})
