// System calls that change something outside of the process, and their names in the table. Pure; facts about the
// process come in. Numbers: arch/x86/entry/syscalls/syscall_64.tbl.

/** Facts about the process that is about to make the call. */
export type Process = {
  readonly pid: number
  /** Where a descriptor leads, as in /proc/PID/fd; '' where it leads nowhere. */
  readonly target: (fd: number) => string
  /** The text that ends with a zero byte at this address; '' where there is none. */
  readonly text: (address: number) => string
  readonly bytes: (address: number, length: number) => Buffer
  /** Where the process logs to: it promises nothing there. */
  readonly log: string
  /** A socket by whom it was accepted from. */
  readonly clientOf: (socket: string) => string
  /** The other end of each socket, as far as its calls have shown. */
  readonly peers: Map<string, string>
}

type Args = readonly number[]
/** Object of the call; null if it changes nothing outside. */
type Object = (args: Args, process: Process) => string | null
type Row = readonly [name: string, object: Object]

const flags = { create: 0o100, truncate: 0o1000 } as const
const cloneThread = 0x1_0000
const atCwd = -100
const addressBytesMax = 110

/** Effects by number. Calls that are not here only read, wait, or change the process itself. */
const EFFECTS: ReadonlyMap<number, Row> = new Map<number, Row>([
  [1, ['write', written]],
  [18, ['pwrite64', written]],
  [20, ['writev', written]],
  [296, ['pwritev', written]],
  [328, ['pwritev2', written]],
  [40, ['sendfile', written]],
  [275, ['splice', (args, process) => written([args[2] ?? -1], process)]],
  [326, ['copy_file_range', (args, process) => written([args[2] ?? -1], process)]],
  [2, ['open', ([path = 0, how = 0], process) => opened(process.text(path), how)]],
  [85, ['creat', ([path = 0], process) => process.text(path)]],
  [257, ['openat', ([at = 0, path = 0, how = 0], process) => opened(pathAt(at, path, process), how)]],
  [437, ['openat2', ([at = 0, path = 0, how = 0], process) => openedHow(pathAt(at, path, process), how, process)]],
  [76, ['truncate', pathFirst]],
  [77, ['ftruncate', written]],
  [285, ['fallocate', written]],
  [74, ['fsync', written]],
  [75, ['fdatasync', written]],
  [277, ['sync_file_range', written]],
  [82, ['rename', ([from = 0, to = 0], process) => `${process.text(from)} -> ${process.text(to)}`]],
  [264, ['renameat', renamedAt]],
  [316, ['renameat2', renamedAt]],
  [86, ['link', ([from = 0, to = 0], process) => `${process.text(from)} -> ${process.text(to)}`]],
  [265, ['linkat', renamedAt]],
  [88, ['symlink', ([, path = 0], process) => process.text(path)]],
  [266, ['symlinkat', ([, at = 0, path = 0], process) => pathAt(at, path, process)]],
  [87, ['unlink', pathFirst]],
  [263, ['unlinkat', pathSecond]],
  [84, ['rmdir', pathFirst]],
  [83, ['mkdir', pathFirst]],
  [258, ['mkdirat', pathSecond]],
  [133, ['mknod', pathFirst]],
  [259, ['mknodat', pathSecond]],
  [90, ['chmod', pathFirst]],
  [91, ['fchmod', written]],
  [268, ['fchmodat', pathSecond]],
  [452, ['fchmodat2', pathSecond]],
  [92, ['chown', pathFirst]],
  [93, ['fchown', written]],
  [94, ['lchown', pathFirst]],
  [260, ['fchownat', pathSecond]],
  [165, ['mount', ([, target = 0], process) => process.text(target)]],
  [166, ['umount2', pathFirst]],
  [16, ['ioctl', controlled]],
  [42, ['connect', connected]],
  [49, ['bind', bound]],
  [50, ['listen', ([fd = -1], process) => endOf(fd, process)]],
  [44, ['sendto', written]],
  [46, ['sendmsg', written]],
  [307, ['sendmmsg', written]],
  [48, ['shutdown', written]],
  [56, ['clone', ([how = 0]) => (how & cloneThread ? null : 'a new process')]],
  [57, ['fork', () => 'a new process']],
  [58, ['vfork', () => 'a new process']],
  [435, ['clone3', clonedBy]],
  [62, ['kill', ([pid = 0, signal = 0], process) => (signal === 0 || pid === process.pid ? null : `signal ${signal}`)]],
  [424, ['pidfd_send_signal', ([, signal = 0]) => (signal === 0 ? null : `signal ${signal}`)]],
])

/** The name of the effect that this call is about to have; null if it has none outside of the process. */
export function effectOf(number: number, args: Args, process: Process): string | null {
  const row = EFFECTS.get(number)
  if (row === undefined) return null
  const object = row[1](args, process)
  return object === null ? null : `${row[0]} ${object}`
}

/** Whether the call gives birth to a process. */
export function isBirth(effect: string): boolean {
  return effect.endsWith('a new process')
}

/** The same place in each run: without the directory of this run, and without what is made up anew each time. */
export function placeOf(effect: string, directory: string): string {
  return effect
    .replaceAll(`${directory}/`, '')
    .replace(/\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/g, 'ID')
    .replace(/\b[0-9a-f]{16,}\b/g, 'HEX')
    .replace(/\/proc\/(?:self|\d+)\/fd\/\d+/g, '/proc/self/fd/N')
    .replace(/:\[\d+\]/g, '')
}

/** Place of a run before the last of these effects: the effect before it that is not the database's. */
export function contextOf(effects: readonly string[]): string | null {
  return effects.slice(0, -1).findLast(effect => !/strongroom\.db(?:-wal|-shm)?$/.test(effect)) ?? null
}

/** Wake-ups inside of the process, the log, and devices that forget lead to nobody. */
function written([fd = -1]: Args, process: Process): string | null {
  const target = process.target(fd)
  if (target === '' || target === process.log || target === '/dev/null') return null
  // Bytes that a child will read are the child's effect.
  if (target.startsWith('anon_inode:') || target.startsWith('/memfd:')) return null
  return endOf(fd, process)
}

function endOf(fd: number, { target, peers, clientOf }: Process): string {
  const name = target(fd)
  return peers.get(name) ?? clientOf(name)
}

function opened(path: string, how: number): string | null {
  return how & (flags.create | flags.truncate) ? path : null
}

function openedHow(path: string, how: number, process: Process): string | null {
  return opened(path, Number(process.bytes(how, 8).readBigUInt64LE(0) & 0xffff_ffffn))
}

function pathFirst([path = 0]: Args, process: Process): string {
  return process.text(path)
}

function pathSecond([at = 0, path = 0]: Args, process: Process): string {
  return pathAt(at, path, process)
}

function renamedAt([fromAt = 0, from = 0, toAt = 0, to = 0]: Args, process: Process): string {
  return `${pathAt(fromAt, from, process)} -> ${pathAt(toAt, to, process)}`
}

function pathAt(at: number, address: number, { text, target }: Process): string {
  const path = text(address)
  if (path.startsWith('/') || (at | 0) === atCwd) return path
  return `${target(at)}/${path}`
}

/** Requests that make or change an interface, address or route, or clone a file (linux/if_tun.h, sockios.h, fs.h). */
function controlled([fd = -1, request = 0]: Args, process: Process): string | null {
  const code = request & 0xffff
  const kind = code >> 8
  const isSet = kind === 0x89 && [0x0b, 0x0c, 0x14, 0x16, 0x22, 0x24, 0x53].includes(code & 0xff)
  const isTun = kind === 0x54 && (code & 0xff) >= 0xc8 && process.target(fd) === '/dev/net/tun'
  const isClone = (request & 0xffff_ffff) === 0x4004_9409
  return isSet || isTun || isClone ? `0x${code.toString(16)} ${endOf(fd, process)}` : null
}

function connected([fd = -1, address = 0, length = 0]: Args, process: Process): string {
  const peer = addressText(address, length, process)
  process.peers.set(process.target(fd), `socket to ${peer}`)
  return peer
}

function bound([fd = -1, address = 0, length = 0]: Args, process: Process): string {
  const own = addressText(address, length, process)
  process.peers.set(process.target(fd), `socket at ${own}`)
  return own
}

/** unix(7), netlink(7), ip(7). */
function addressText(address: number, length: number, process: Process): string {
  const bytes = process.bytes(address, Math.min(length, addressBytesMax))
  if (bytes.length < 8) return 'no address'
  const family = bytes.readUInt16LE(0)
  if (family === 1) return bytes.toString('utf8', 2).split('\0').find(Boolean) ?? 'unnamed'
  if (family === 16) return 'netlink'
  if (family === 2) return [...bytes.subarray(4, 8)].join('.')
  return `family ${family}`
}

function clonedBy([how = 0]: Args, process: Process): string | null {
  const bytes = process.bytes(how, 8)
  return bytes.length === 8 && Number(bytes.readBigUInt64LE(0)) & cloneThread ? null : 'a new process'
}
