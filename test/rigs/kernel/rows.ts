// Every number and structure that goes to the kernel by hand, beside the C expression that must have the same value.
// Pure.

import * as kvm from '../../../scripts/rigs/snp/kvm-layout.ts'
import * as sevGuest from '../../../src/guest/report/sev-guest.codec.ts'
import * as descriptors from '../../../src/host/descriptors.ts'
import * as clock from '../../../src/host/kernel-clock.ts'
import * as netlink from '../../../src/host/network/netlink.ts'
import * as message from '../../../src/host/network/netlink-message.ts'
import * as netns from '../../../src/host/network/netns.ts'
import { RTF } from '../../../src/host/network/pool-routes.ts'
import * as reset from '../../../src/host/network/reset-connections.ts'
import * as tap from '../../../src/host/network/tap.ts'
import * as peer from '../../../src/host/peer.ts'
import * as sev from '../../../src/host/sev.ts'
import { PRCTL, RLIMIT } from '../../../src/linux/confine.ts'
import * as pidfd from '../../../src/linux/libc/pidfd.ts'
import * as processes from '../../../src/linux/libc/processes.ts'
import * as sockets from '../../../src/linux/libc/sockets.ts'
import { LOCK, MOUNT, rebootAutoboot } from '../../../src/linux/libc.ts'
import { SETUP } from '../../../src/vm/launch/bzimage.codec.ts'

/** An expression of C, and our number for it. */
type Row = readonly [expression: string, ours: number]
export type Rows = Readonly<Record<string, readonly Row[]>>

const field = (struct: string, name: string, [offset, bytes]: readonly [number, number]): Row[] => [
  [`__builtin_offsetof(${struct}, ${name})`, offset],
  [`sizeof(((${struct} *)0)->${name})`, bytes],
]
const offset = (struct: string, name: string, ours: number): Row => [`__builtin_offsetof(${struct}, ${name})`, ours]
const size = (struct: string, ours: number): Row => [`sizeof(${struct})`, ours]
/** The lowest bit of the byte at `at` is this one-bit field. */
const bit = (struct: string, name: string, at: number): Row => [
  `({ ${struct} whole = {0}; whole.${name} = 1; ((unsigned char *)&whole)[${at}]; })`,
  1,
]

/** By the file that has the numbers. The same on x86-64 and aarch64. */
export const KERNEL_ROWS: Rows = {
  'src/guest/report/sev-guest.codec.ts': [
    ...field('struct snp_guest_request_ioctl', 'msg_version', sevGuest.IOCTL.msgVersion),
    ...field('struct snp_guest_request_ioctl', 'req_data', sevGuest.IOCTL.reqData),
    ...field('struct snp_guest_request_ioctl', 'resp_data', sevGuest.IOCTL.respData),
    ...field('struct snp_guest_request_ioctl', 'fw_error', sevGuest.IOCTL.fwError),
    ...field('struct snp_guest_request_ioctl', 'vmm_error', sevGuest.IOCTL.vmmError),
    size('struct snp_guest_request_ioctl', sevGuest.ioctlBytes),
    ...field('struct snp_report_req', 'user_data', sevGuest.REPORT_REQ.userData),
    ...field('struct snp_report_req', 'vmpl', sevGuest.REPORT_REQ.vmpl),
    ...field('struct snp_report_req', 'rsvd', sevGuest.REPORT_REQ.rsvd),
    size('struct snp_report_req', sevGuest.reportReqBytes),
    size('struct snp_report_resp', sevGuest.reportRespBytes),
    ['SNP_GET_REPORT', sevGuest.snpGetReport],
    ['SNP_GUEST_VMM_ERR_INVALID_LEN', sevGuest.VMM_ERROR.invalidLength],
    ['SNP_GUEST_VMM_ERR_BUSY', sevGuest.VMM_ERROR.busy],
    ['SEV_RET_SUCCESS', firmwareError('success')],
    ['SEV_RET_INVALID_PARAM', firmwareError('invalid parameter')],
    ['SEV_RET_INVALID_KEY', firmwareError('invalid key')],
    ['(__u32)SEV_RET_NO_FW_CALL', firmwareError('never asked')],
  ],
  'src/host/sev.ts': [
    ['SEV_ISSUE_CMD', sev.SEV_ISSUE_CMD],
    ['SNP_PLATFORM_STATUS', sev.snpPlatformStatus],
    offset('struct sev_issue_cmd', 'cmd', sev.ISSUE.command),
    offset('struct sev_issue_cmd', 'data', sev.ISSUE.data),
    offset('struct sev_issue_cmd', 'error', sev.ISSUE.error),
    size('struct sev_issue_cmd', sev.ISSUE.bytes),
    ...field('struct sev_user_data_snp_status', 'api_major', sev.STATUS.apiMajor),
    ...field('struct sev_user_data_snp_status', 'api_minor', sev.STATUS.apiMinor),
    ...field('struct sev_user_data_snp_status', 'state', sev.STATUS.state),
    bit('struct sev_user_data_snp_status', 'is_rmp_initialized', sev.STATUS.rmp[0]),
    ...field('struct sev_user_data_snp_status', 'build_id', sev.STATUS.build),
    bit('struct sev_user_data_snp_status', 'mask_chip_id', sev.STATUS.flags[0]),
    ...field('struct sev_user_data_snp_status', 'guest_count', sev.STATUS.guestCount),
    ...field('struct sev_user_data_snp_status', 'current_tcb_version', sev.STATUS.currentTcb),
    ...field('struct sev_user_data_snp_status', 'reported_tcb_version', sev.STATUS.reportedTcb),
    size('struct sev_user_data_snp_status', sev.statusBytes),
  ],
  'src/host/network/tap.ts': [
    ['TUNSETIFF', tap.TUNSETIFF],
    ['IFF_TAP', tap.FLAGS.tap],
    ['IFF_NO_PI', tap.FLAGS.noPacketInfo],
    ['IFF_TUN_EXCL', tap.FLAGS.exclusive],
    ...field('struct ifreq', 'ifr_name', tap.IFREQ.name),
    ...field('struct ifreq', 'ifr_flags', tap.IFREQ.flags),
    size('struct ifreq', tap.ifreqBytes),
  ],
  'src/host/network/netlink.ts': [
    ['NETLINK_NETFILTER', netlink.NETLINK.nftables.protocol],
    ['1 << (NFNLGRP_NFTABLES - 1)', netlink.NETLINK.nftables.groups],
    ['NETLINK_ROUTE', netlink.NETLINK.addresses.protocol],
    [
      'RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_RULE | RTMGRP_IPV6_IFADDR | 1 << (RTNLGRP_IPV6_RULE - 1)',
      netlink.NETLINK.addresses.groups,
    ],
    ['SOL_SOCKET', netlink.SOCKET.level],
    ['SO_RCVBUFFORCE', netlink.SOCKET.receiveBufferForce],
  ],
  'src/host/network/netlink-message.ts': [
    ...field('struct nlmsghdr', 'nlmsg_len', message.HEADER.length),
    ...field('struct nlmsghdr', 'nlmsg_type', message.HEADER.type),
    ...field('struct nlmsghdr', 'nlmsg_pid', message.HEADER.port),
    ['NLMSG_HDRLEN', message.headerBytes],
    size('struct nfgenmsg', message.nfgenmsgBytes),
    ['NLA_HDRLEN', message.attributeHeaderBytes],
    ['NFPROTO_INET', message.NFT_FAMILIES.inet],
    ['NFPROTO_ARP', message.NFT_FAMILIES.arp],
    ['NFNL_SUBSYS_NFTABLES', message.NFT.subsystem],
    ['NFT_MSG_NEWGEN', message.NFT.newGeneration],
    ...[
      'TABLE_NAME',
      'CHAIN_TABLE',
      'RULE_TABLE',
      'SET_TABLE',
      'SET_ELEM_LIST_TABLE',
      'OBJ_TABLE',
      'FLOWTABLE_TABLE',
    ].map((name): Row => [`NFTA_${name}`, message.NFT.nameAttribute]),
  ],
  'src/host/network/netns.ts': [
    ['NSFS_MAGIC', netns.nsfsMagic],
    ['CLONE_NEWNET', netns.networkKind],
  ],
  'src/host/network/pool-routes.ts': [
    ['(__u32)RTF_LOCAL', RTF.local],
    ['RTF_ANYCAST', RTF.anycast],
  ],
  'src/host/network/reset-connections.ts': [
    ['IPPROTO_RAW', reset.IPPROTO_RAW],
    size('struct sockaddr_in', reset.socketAddressBytes),
  ],
  'src/host/peer.ts': [
    ['SOL_SOCKET', peer.SOCKET.level],
    ['SO_PEERCRED', peer.SOCKET.peerCredentials],
  ],
  'src/host/descriptors.ts': [size('struct sockaddr_un', descriptors.addressBytes)],
  'src/host/kernel-clock.ts': [
    offset('struct timex', 'maxerror', clock.TIMEX.maxError),
    offset('struct timex', 'status', clock.TIMEX.status),
    size('struct timex', clock.TIMEX.bytes),
    ['STA_UNSYNC', clock.STA_UNSYNC],
    ['TIME_ERROR', clock.TIME_ERROR],
  ],
  'src/linux/confine.ts': [
    ['RLIMIT_FSIZE', RLIMIT.fileBytes],
    ['RLIMIT_CORE', RLIMIT.core],
    ['RLIMIT_NOFILE', RLIMIT.files],
    ['PR_SET_PDEATHSIG', PRCTL.parentDeathSignal],
    ['PR_SET_DUMPABLE', PRCTL.dumpable],
    ['PR_SET_NO_NEW_PRIVS', PRCTL.noNewPrivileges],
  ],
  'src/linux/libc.ts': [
    ['LINUX_REBOOT_CMD_RESTART', rebootAutoboot],
    ['MS_RDONLY', MOUNT.readOnly],
    ['MS_NOSUID', MOUNT.noSuid],
    ['MS_NODEV', MOUNT.noDevices],
    ['MS_NOEXEC', MOUNT.noExecution],
    ['LOCK_EX', LOCK.exclusive],
    ['LOCK_NB', LOCK.nonBlocking],
    ['LOCK_UN', LOCK.unlock],
  ],
  'src/linux/libc/pidfd.ts': [
    ['__NR_pidfd_send_signal', pidfd.SYSCALL.pidfdSendSignal],
    ['__NR_pidfd_open', pidfd.SYSCALL.pidfdOpen],
    ['F_DUPFD_CLOEXEC', pidfd.FCNTL.duplicateCloseOnExec],
  ],
  'src/linux/libc/processes.ts': [
    ['F_SETFL', processes.FCNTL.setFlags],
    ['P_ALL', processes.WAIT.all],
    ['WNOHANG', processes.WAIT.noHang],
    ['WEXITED', processes.WAIT.exited],
    ['WNOWAIT', processes.WAIT.noWait],
    offset('siginfo_t', '_sifields._sigchld._pid', processes.SIGINFO.pid),
    size('siginfo_t', processes.SIGINFO.bytes),
  ],
  'src/linux/libc/sockets.ts': [
    ['POLLIN', sockets.POLL.in],
    ['POLLRDHUP', sockets.POLL.peerClosed],
    ['SOL_SOCKET', sockets.SOCKET.level],
    ['SO_RCVBUF', sockets.SOCKET.receiveBuffer],
    ['SO_ACCEPTCONN', sockets.SOCKET.isListening],
    offset('struct sockaddr_in', 'sin_port', sockets.ADDRESS.port),
    offset('struct sockaddr_in6', 'sin6_port', sockets.ADDRESS.port),
    size('struct __kernel_sockaddr_storage', sockets.ADDRESS.bytes),
    // A poll is two words: the descriptor, then what is polled below what is found.
    size('struct pollfd', 8),
    offset('struct pollfd', 'events', 4),
    offset('struct pollfd', 'revents', 6),
  ],
}

/** x86-64 alone. */
export const KERNEL_X86_ROWS: Rows = {
  'src/vm/launch/bzimage.codec.ts': [
    offset('struct boot_params', 'hdr.setup_sects', SETUP.sectors),
    offset('struct boot_params', 'hdr.header', SETUP.magic),
    offset('struct boot_params', 'hdr.version', SETUP.protocol),
    offset('struct boot_params', 'hdr.payload_offset', SETUP.payload),
    offset('struct boot_params', 'hdr.payload_length', SETUP.payloadBytes),
  ],
  'scripts/rigs/snp/kvm-layout.ts': [
    offset('struct kvm_sev_snp_launch_start', 'policy', kvm.START.policy),
    offset('struct kvm_sev_snp_launch_start', 'flags', kvm.START.flags),
    offset('struct kvm_sev_snp_launch_finish', 'id_block_en', kvm.FINISH.idBlockEn),
    offset('struct kvm_sev_snp_launch_finish', 'auth_key_en', kvm.FINISH.authKeyEn),
    offset('struct kvm_sev_snp_launch_finish', 'vcek_disabled', kvm.FINISH.vcekDisabled),
    ...field('struct kvm_sev_snp_launch_finish', 'host_data', [
      kvm.FINISH.hostData,
      kvm.FINISH.hostDataEnd - kvm.FINISH.hostData,
    ]),
    offset('struct kvm_segment', 'base', kvm.SEGMENT.base),
    offset('struct kvm_segment', 'limit', kvm.SEGMENT.limit),
    offset('struct kvm_segment', 'selector', kvm.SEGMENT.selector),
    ...['type', 'present', 'dpl', 'db', 's', 'l', 'g', 'avl', 'unusable'].flatMap((name, at) =>
      field('struct kvm_segment', name, [kvm.SEGMENT.attributes + at, 1]),
    ),
    offset('struct kvm_dtable', 'base', kvm.TABLE.base),
    offset('struct kvm_dtable', 'limit', kvm.TABLE.limit),
    ...Object.entries(kvm.SREGS2).map(([name, at]) => offset('struct kvm_sregs2', name, at)),
    ...Object.entries(kvm.REGS).map(([name, at]) => offset('struct kvm_regs', name, at)),
    ...Object.entries(kvm.DEBUGREGS).map(([name, at]) => offset('struct kvm_debugregs', name, at)),
    offset('struct kvm_xcrs', 'xcrs[0].value', kvm.XCRS.value),
    offset('struct kvm_msrs', 'nmsrs', kvm.MSRS.count),
    offset('struct kvm_msrs', 'entries', kvm.MSRS.entries),
    offset('struct kvm_msr_entry', 'index', kvm.MSR.index),
    offset('struct kvm_msr_entry', 'data', kvm.MSR.value),
    size('struct kvm_msr_entry', kvm.MSR.bytes),
  ],
}

/** Expressions in terms of the recorder (scripts/rigs/snp/recorder.c), and KVM's for the same. */
export const RECORDER_ROWS: readonly (readonly [own: string, kernels: string])[] = [
  ...[
    ...['CHECK_EXTENSION', 'CREATE_VM', 'CREATE_VCPU', 'RUN', 'SET_REGS', 'SET_SREGS2', 'SET_MSRS', 'SET_XCRS'],
    ...['SET_DEBUGREGS', 'SET_XSAVE', 'ENABLE_CAP', 'SET_MEMORY_ATTRIBUTES', 'CREATE_GUEST_MEMFD', 'MEMORY_ENCRYPT_OP'],
    ...['CAP_EXIT_HYPERCALL', 'CAP_USER_MEMORY2', 'CAP_MEMORY_ATTRIBUTES', 'CAP_GUEST_MEMFD', 'CAP_VM_TYPES'],
    ...['GET_DEVICE_ATTR', 'GET_XSAVE'],
  ].map((name): readonly [string, string] => [`(unsigned)${name}`, `(unsigned)KVM_${name}`]),
  ...['LAUNCH_START', 'LAUNCH_UPDATE', 'LAUNCH_FINISH'].map((name): readonly [string, string] => [
    `(unsigned)${name}`,
    `(unsigned)KVM_SEV_SNP_${name}`,
  ]),
  ['(unsigned)SET_MEMORY_REGION', '(unsigned)KVM_SET_USER_MEMORY_REGION'],
  ['(unsigned)SET_MEMORY_REGION2', '(unsigned)KVM_SET_USER_MEMORY_REGION2'],
  ['(unsigned)SEV_ISSUE_CMD', '(unsigned)SEV_ISSUE_CMD'],
  ['(unsigned)START_BYTES', 'sizeof(struct kvm_sev_snp_launch_start)'],
  ['(unsigned)FINISH_BYTES', 'sizeof(struct kvm_sev_snp_launch_finish)'],
  ['(unsigned)ID_BLOCK_BYTES', 'KVM_SEV_SNP_ID_BLOCK_SIZE'],
  ['(unsigned)ID_AUTH_BYTES', 'KVM_SEV_SNP_ID_AUTH_SIZE'],
  ...(['id', 'data', 'error', 'sev_fd'] as const).map((name): readonly [string, string] => [
    `__builtin_offsetof(struct sev_cmd, ${name})`,
    `__builtin_offsetof(struct kvm_sev_cmd, ${name})`,
  ]),
  ['(unsigned)GRP_SEV', 'KVM_X86_GRP_SEV'],
  ['(unsigned)SEV_VMSA_FEATURES', 'KVM_X86_SEV_VMSA_FEATURES'],
  ...(['flags', 'group', 'attr'] as const).map((name): readonly [string, string] => [
    `__builtin_offsetof(struct device_attr, ${name})`,
    `__builtin_offsetof(struct kvm_device_attr, ${name})`,
  ]),
  ['__builtin_offsetof(struct device_attr, address)', '__builtin_offsetof(struct kvm_device_attr, addr)'],
  ['sizeof(struct device_attr)', 'sizeof(struct kvm_device_attr)'],
  // The bytes that set_xsave has room for.
  ['4096', 'sizeof(struct kvm_xsave)'],
  ['sizeof(struct sev_cmd)', 'sizeof(struct kvm_sev_cmd)'],
  ...[
    ...[['gfn', 'gfn_start'] as const, ['address', 'uaddr'] as const, ['bytes', 'len'] as const],
    ...[['type', 'type'] as const, ['flags', 'flags'] as const],
  ].map(([own, kernels]): readonly [string, string] => [
    `__builtin_offsetof(struct launch_update, ${own})`,
    `__builtin_offsetof(struct kvm_sev_snp_launch_update, ${kernels})`,
  ]),
  ['sizeof(struct launch_update)', 'sizeof(struct kvm_sev_snp_launch_update)'],
  ...Object.entries({ REGS: 'regs', SREGS2: 'sregs2', DEBUGREGS: 'debugregs', XCRS: 'xcrs' }).map(
    ([request, struct]): readonly [string, string] => [
      `({ const char *name; state_bytes(SET_${request}, 0, &name); })`,
      `sizeof(struct kvm_${struct})`,
    ],
  ),
  // The count alone, and one entry.
  ['({ const char *name; unsigned count = 0; state_bytes(SET_MSRS, &count, &name); })', 'sizeof(struct kvm_msrs)'],
  [
    '({ const char *name; unsigned count = 1; state_bytes(SET_MSRS, &count, &name); })',
    'sizeof(struct kvm_msrs) + sizeof(struct kvm_msr_entry)',
  ],
  // KVM's kinds of VM up to SNP's, private memory, and the hypercall by which a guest shares a page.
  ['extension(-1, (void *)CAP_VM_TYPES)', '(1 << (KVM_X86_SNP_VM + 1)) - 1'],
  ['extension(-1, (void *)CAP_MEMORY_ATTRIBUTES)', 'KVM_MEMORY_ATTRIBUTE_PRIVATE'],
  ['extension(-1, (void *)CAP_EXIT_HYPERCALL)', '1 << KVM_HC_MAP_GPA_RANGE'],
]

/** Numbers and structures of the C library, which are not all the kernel's. */
export const C_LIBRARY_ROWS: Rows = {
  'src/host/descriptors.ts': [
    offset('struct msghdr', 'msg_iov', descriptors.HEADER.vector),
    offset('struct msghdr', 'msg_iovlen', descriptors.HEADER.vectorCount),
    offset('struct msghdr', 'msg_control', descriptors.HEADER.control),
    offset('struct msghdr', 'msg_controllen', descriptors.HEADER.controlBytes),
    size('struct msghdr', descriptors.HEADER.bytes),
    ['CMSG_LEN(0)', descriptors.controlHeadBytes],
    offset('struct cmsghdr', 'cmsg_level', 8),
    offset('struct cmsghdr', 'cmsg_type', 12),
    size('struct iovec', 16),
    ['SOL_SOCKET', descriptors.socketLevel],
    ['SCM_RIGHTS', descriptors.rights],
    ['MSG_NOSIGNAL', descriptors.noSignal],
    ['MSG_CMSG_CLOEXEC', descriptors.closeOnExec],
    ['AF_UNIX', descriptors.unixFamily],
    size('struct sockaddr_un', descriptors.addressBytes),
  ],
  'src/host/kernel-clock.ts': [
    offset('struct timex', 'maxerror', clock.TIMEX.maxError),
    offset('struct timex', 'status', clock.TIMEX.status),
    size('struct timex', clock.TIMEX.bytes),
  ],
  'src/host/network/netlink.ts': [
    ['AF_NETLINK', netlink.family],
    ['SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK', netlink.type],
    offset('struct sockaddr_nl', 'nl_groups', 8),
    size('struct sockaddr_nl', 12),
  ],
  'src/host/network/reset-connections.ts': [
    ['AF_INET', reset.INET],
    ['SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK', reset.RAW],
    offset('struct sockaddr_in', 'sin_addr', 4),
  ],
  'src/host/peer.ts': [
    offset('struct passwd', 'pw_uid', peer.ENTRY.id),
    offset('struct group', 'gr_gid', peer.ENTRY.id),
    [`sizeof(struct passwd) <= ${peer.ENTRY.bytes} && sizeof(struct group) <= ${peer.ENTRY.bytes}`, 1],
    size('struct ucred', 12),
  ],
  'src/linux/libc.ts': [
    ['LOCK_EX', LOCK.exclusive],
    ['LOCK_NB', LOCK.nonBlocking],
    ['LOCK_UN', LOCK.unlock],
    ['MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC', 15],
    ['RB_AUTOBOOT', rebootAutoboot],
  ],
  'src/linux/libc/processes.ts': [
    ['P_ALL', processes.WAIT.all],
    ['WNOHANG | WEXITED | WNOWAIT', processes.WAIT.noHang | processes.WAIT.exited | processes.WAIT.noWait],
    offset('siginfo_t', 'si_pid', processes.SIGINFO.pid),
    size('siginfo_t', processes.SIGINFO.bytes),
  ],
  'src/linux/libc/sockets.ts': [
    ['AF_UNIX', sockets.UNIX.family],
    ['SOCK_STREAM', sockets.UNIX.stream],
    ['SOCK_CLOEXEC', sockets.UNIX.closeOnExec],
    ['AF_INET', sockets.ADDRESS.families[0] ?? -1],
    ['AF_INET6', sockets.ADDRESS.families[1] ?? -1],
    ['POLLIN', sockets.POLL.in],
    ['POLLRDHUP', sockets.POLL.peerClosed],
    size('struct sockaddr_storage', sockets.ADDRESS.bytes),
  ],
}

function firmwareError(name: string): number {
  const found = Object.entries(sevGuest.FIRMWARE_NAMES).find(([, value]) => value === name)
  return Number(found?.[0] ?? Number.NaN)
}

/** Headers of the expressions. */
export const kernelHead = [
  ...[
    'types',
    'ioctl',
    'sev-guest',
    'psp-sev',
    'if',
    'if_tun',
    'netlink',
    'rtnetlink',
    'netfilter',
    'ipv6_route',
    'magic',
  ],
  ...['sched', 'prctl', 'resource', 'fcntl', 'mount', 'reboot', 'wait', 'timex', 'in', 'in6', 'un', 'socket'],
  ...['netfilter/nfnetlink', 'netfilter/nf_tables'],
]
  .map(name => `linux/${name}`)
  .concat(['unistd', 'socket', 'poll', 'siginfo'].map(name => `asm/${name}`))
  .map(include)
export const kernelX86Head = ['linux/kvm', 'linux/kvm_para', 'linux/psp-sev', 'asm/bootparam'].map(include)
export const libraryHead = [
  ...['stdio', 'sys/socket', 'sys/un', 'sys/uio', 'sys/timex', 'sys/file', 'sys/mount', 'sys/reboot', 'sys/wait'],
  ...['netinet/in', 'pwd', 'grp', 'poll', 'signal', 'linux/netlink'],
].map(include)

function include(name: string): string {
  return `#include <${name}.h>`
}
