// A guest that drives QEMU's network card as no driver would: it says what it likes in front of each frame. No VM
// boots: QEMU's qtest protocol (docs/devel/testing/qtest.rst) writes ports and memory in the place of a processor,
// which stands still. Effects: one QEMU, one file.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export type HostileNic = Disposable & {
  /** Queues a frame behind a header of the guest's making and waits until the card has taken it. */
  readonly send: (header: Uint8Array, frame: Uint8Array) => Promise<void>
  /** Features that the card offers (VIRTIO 1.3, 5.1.3), of which the guest has taken every one. */
  readonly offered: number
}

/** struct virtio_net_hdr of the legacy interface (VIRTIO 1.3, 5.1.6.1): `gsoSize` bytes of data to a segment. */
export function gsoHeader({ gsoSize, headerBytes }: { gsoSize: number; headerBytes: number }): Uint8Array {
  const header = new Uint8Array(10)
  const view = new DataView(header.buffer)
  // VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV4; the checksum is 16 bytes into the TCP header.
  header.set([1, 1])
  view.setUint16(2, headerBytes, true)
  view.setUint16(4, gsoSize, true)
  view.setUint16(6, 34, true)
  view.setUint16(8, 16, true)
  return header
}

/** Legacy interface in port space (VIRTIO 1.3, 4.1.4.10). */
const PORT = { offered: 0, taken: 4, queuePage: 8, queueSize: 12, queueSelect: 14, notify: 16, status: 18 } as const
const portBase = 0xc000
const pciAddress = 0x8000_0000 + (5 << 11)
/** The processor's first instruction and its last. */
const hlt = 0xf4
const pageBytes = 4096
const queuePage = 0x100
const bufferAddress = 0x20_0000
const transmitQueue = 1
const driverOk = 7
const everything = 0xffff_ffff

/** `nic` is the rest of the `-device` argument, as the plan of a VM has it. `fd` is the tap's. */
export async function startHostileNic({ fd, nic }: { fd: number; nic: string }): Promise<HostileNic> {
  using undo = new DisposableStack()
  const directory = mkdtempSync(join(tmpdir(), 'srt-nic-'))
  undo.defer(() => rmSync(directory, { recursive: true, force: true }))
  const firmware = join(directory, 'halt.bin')
  writeFileSync(firmware, new Uint8Array(65_536).fill(hlt))
  const argv = ['qemu-system-x86_64', '-machine', 'q35', '-accel', 'tcg', '-nodefaults', '-no-user-config']
  argv.push('-display', 'none', '-bios', firmware)
  const qtest = ['-m', '16', '-qtest', 'stdio', '-qtest-log', '/dev/null', '-netdev', 'tap,id=net,fd=3']
  const child = Bun.spawn([...argv, ...qtest, '-device', `virtio-net-pci,netdev=net,addr=0x5,${nic}`], {
    stdio: ['pipe', 'pipe', 'inherit', fd],
  })
  undo.defer(() => child.kill('SIGKILL'))
  const { stdin, stdout } = child
  if (!(stdout instanceof ReadableStream) || typeof stdin !== 'object') throw new Error('qtest has no pipes')
  const answer = lines(stdout)
  const command = async (text: string): Promise<number> => {
    stdin.write(`${text}\n`)
    stdin.flush()
    for (;;) {
      const line = await answer()
      const [word, value = '0'] = line.split(' ')
      if (word === 'OK') return Number(value)
      if (word === 'FAIL' || word === 'ERR') throw new Error(`qtest: ${text}: ${line}`)
    }
  }
  const out = (width: 'b' | 'w' | 'l', port: number, value: number) => command(`out${width} ${port} ${value}`)
  const config = async (register: number, value: number) => {
    await out('l', 0xcf8, pciAddress + register)
    await out('l', 0xcfc, value)
  }
  const write = (address: number, bytes: Uint8Array) =>
    command(`write ${address} ${bytes.length} 0x${Buffer.from(bytes).toString('hex')}`)
  await config(0x10, portBase)
  await config(0x04, 7)
  await out('b', portBase + PORT.status, 3)
  const offered = await command(`inl ${portBase + PORT.offered}`)
  await out('l', portBase + PORT.taken, everything)
  await out('w', portBase + PORT.queueSelect, transmitQueue)
  const size = await command(`inw ${portBase + PORT.queueSize}`)
  await out('l', portBase + PORT.queuePage, queuePage)
  await out('b', portBase + PORT.status, driverOk)
  const descriptors = queuePage * pageBytes
  const available = descriptors + 16 * size
  const used = Math.ceil((available + 4 + 2 * size + 2) / pageBytes) * pageBytes
  let sent = 0
  const kept = undo.move()
  return {
    offered,
    send: async (header, frame) => {
      await write(bufferAddress, Buffer.concat([header, frame]))
      await write(descriptors, descriptor(bufferAddress, header.length, { next: 1 }))
      await write(descriptors + 16, descriptor(bufferAddress + header.length, frame.length, { next: null }))
      // Every entry of the ring is descriptor 0, which memory that nobody has written says already.
      sent = (sent + 1) & 0xffff
      await write(available + 2, Uint8Array.of(sent & 0xff, sent >> 8))
      await out('w', portBase + PORT.notify, transmitQueue)
      const deadlineMs = performance.now() + 60_000
      while ((await command(`readw ${used + 2}`)) !== sent)
        if (performance.now() > deadlineMs) throw new Error('the card has not taken the frame')
    },
    [Symbol.dispose]: () => kept.dispose(),
  }
}

/** VIRTIO 1.3, 2.7.5. */
function descriptor(address: number, sizeBytes: number, { next }: { next: number | null }): Uint8Array {
  const bytes = new Uint8Array(16)
  const view = new DataView(bytes.buffer)
  view.setBigUint64(0, BigInt(address), true)
  view.setUint32(8, sizeBytes, true)
  view.setUint16(12, next === null ? 0 : 1, true)
  view.setUint16(14, next ?? 0, true)
  return bytes
}

function lines(stream: ReadableStream<Uint8Array>): () => Promise<string> {
  const reader = stream.getReader()
  let text = ''
  return async () => {
    for (;;) {
      const end = text.indexOf('\n')
      if (end >= 0) {
        const line = text.slice(0, end)
        text = text.slice(end + 1)
        return line
      }
      const { value, done } = await reader.read()
      if (done) throw new Error('QEMU has ended')
      text += Buffer.from(value).toString()
    }
  }
}
