// Every place of the guest's file system that the agent reads or writes, below a root that tests may choose. Pure.

export type GuestPaths = Readonly<ReturnType<typeof guestPaths>>

/** Paths below `root`, which is '' in the guest. */
export function guestPaths(root: string) {
  const runDir = `${root}/run/strongroom`
  return {
    /** tmpfs, made by init: nothing in it outlives the boot. */
    runDir,
    sshHostKey: `${runDir}/ssh_host_ed25519_key`,
    authorizedKeys: `${runDir}/authorized_keys`,
    /** The proof required of the gateway, from the claim. */
    gatewaySettings: `${runDir}/gateway.json`,
    /** The login user's file system of 256 KiB, with the owner's requirements for the gateway. */
    ownGatewayDir: `${runDir}/own-gateway`,
    ownGateway: `${runDir}/own-gateway/gateway.json`,
    gatewayRecord: `${runDir}/gateway-process.json`,
    /** State of the broker; only root writes it, and only the broker's group reads it. */
    brokerState: `${runDir}/broker.json`,
    /** Answers root with the destinations that programs reached for. */
    brokerLog: `${runDir}/broker/owner-log.sock`,
    /** SHA-256 of the state that the broker serves. */
    brokerInForce: `${runDir}/broker/in-force`,
    brokerRecord: `${runDir}/broker-process.json`,
    /** Files of /etc that change, for private roots, which have a copy of it. */
    sharedEtc: `${runDir}/etc`,
    etc: `${root}/etc`,
    /** Certificates that the broker answers with: its own authorities, and these behind the system's roots. */
    authorityFile: `${runDir}/broker/authority.pem`,
    rootsFile: `${runDir}/broker/roots.pem`,
    /** Read by the login shell. */
    sessionSecrets: `${runDir}/session-secrets`,
    /** Included by sshd's configuration. */
    sshdEnvironment: `${runDir}/sshd_environment.conf`,
    claimRecord: `${runDir}/claim.json`,
    /** The receipt of the last evidence, for the verifier inside the guest. */
    receipt: `${runDir}/receipt.json`,
    /** Egress by the host's count, JSON in bytes; absent before the first count. */
    egress: `${runDir}/egress.json`,
    /** Number and digest of this boot's last snapshot. */
    snapshotRecord: `${runDir}/snapshot.json`,
    /** For whom snapshots are encrypted besides the keys that log in; the image's programs read it. */
    snapshotRecipients: `${runDir}/snapshot-recipients`,
    /** Directory of the sessions' terminals. */
    terminals: `${root}/dev/pts`,
    /** Answers with the lockout facts as root sees them. */
    lockoutSocket: `${runDir}/lockout.sock`,
    /** Takes orders of the owner (contract/vm/orders/order.ts). */
    ordersSocket: `${runDir}/orders.sock`,
    /** The state that orders have changed. */
    ordersDir: `${runDir}/orders`,
    /** All keys that log in, once an order has changed them. */
    orderedKeys: `${runDir}/orders/keys`,
    /** Published ports with their keys: their process reads it, by its group, and no program of the owner's. */
    published: `${runDir}/published.json`,
    publishedRecord: `${runDir}/published-process.json`,
    networkRecord: `${runDir}/network.json`,
    sshdRecord: `${runDir}/sshd.json`,
    /** Privilege separation directory of sshd. */
    sshdRunDir: `${root}/run/sshd`,
    /** The system's trust store. */
    caBundle: `${root}/etc/ssl/certs/ca-certificates.crt`,
    motd: `${root}/etc/motd`,
    hosts: `${root}/etc/hosts`,
    hostname: `${root}/etc/hostname`,
    kernelHostname: `${root}/proc/sys/kernel/hostname`,
    resolvConf: `${root}/etc/resolv.conf`,
    loginHome: `${root}/home/agent`,
    /** The gateway key that the guest drew, for the login user's programs. */
    gatewayKey: `${root}/home/agent/.config/opencode/inference.key`,
    /** Random per boot, kept when the agent restarts: Documentation/admin-guide/sysctl/kernel.rst, `random`. */
    bootId: `${root}/proc/sys/kernel/random/boot_id`,
    processes: `${root}/proc`,
    interfaces: `${root}/sys/class/net`,
    virtioPorts: `${root}/sys/class/virtio-ports`,
    devices: `${root}/dev`,
    /** Made by init when every device is set up. */
    devicesReady: `${runDir}/ready`,
    tsmReports: `${root}/sys/kernel/config/tsm/report`,
    sevGuest: `${root}/dev/sev-guest`,
    /** Device of the kernel's resource manager. */
    tpm: `${root}/dev/tpmrm0`,
    /** Gives programs of the VM a quote over their nonce. */
    tpmSocket: `${runDir}/tpm.sock`,
    commandLine: `${root}/proc/cmdline`,
    /** Names this image; part of the measured root. */
    imageFile: `${root}/usr/lib/strongroom/image.json`,
    /** For root alone. */
    logDir: `${runDir}/log`,
  }
}
