// Every place of the guest's file system that the agent reads or writes, below a root that tests may choose. Pure.

export type GuestPaths = {
  /** tmpfs, made by init: nothing in it outlives the boot. */
  readonly runDir: string
  readonly sshHostKey: string
  readonly authorizedKeys: string
  /** The proof required of the gateway, from the claim. */
  readonly gatewaySettings: string
  /** A directory of the login user's, with the owner's requirements for the gateway. */
  readonly ownGatewayDir: string
  readonly ownGateway: string
  readonly gatewayRecord: string
  /** Included by sshd's configuration. */
  readonly sshdEnvironment: string
  readonly claimRecord: string
  /** The receipt of the last evidence, for the verifier inside the guest. */
  readonly receipt: string
  /** Answers with the lockout facts as root sees them. */
  readonly lockoutSocket: string
  readonly networkRecord: string
  readonly sshdRecord: string
  /** Privilege separation directory of sshd. */
  readonly sshdRunDir: string
  /** The system's trust store. */
  readonly caBundle: string
  readonly motd: string
  readonly hosts: string
  readonly hostname: string
  readonly kernelHostname: string
  readonly resolvConf: string
  readonly loginHome: string
  /** The gateway key that the guest drew, for the login user's programs. */
  readonly gatewayKey: string
  /** Random per boot, kept when the agent restarts: Documentation/admin-guide/sysctl/kernel.rst, `random`. */
  readonly bootId: string
  readonly interfaces: string
  readonly virtioPorts: string
  readonly devices: string
  /** Made by init when every device is set up. */
  readonly devicesReady: string
  readonly tsmReports: string
  readonly sevGuest: string
  /** Device of the kernel's resource manager. */
  readonly tpm: string
  /** Gives programs of the VM a quote over their nonce. */
  readonly tpmSocket: string
  readonly commandLine: string
  /** Names this image; part of the measured root. */
  readonly imageFile: string
  /** Readable only by root. */
  readonly logDir: string
}

/** Paths below `root`, which is '' in the guest. */
export function guestPaths(root: string): GuestPaths {
  const runDir = `${root}/run/strongroom`
  return {
    runDir,
    sshHostKey: `${runDir}/ssh_host_ed25519_key`,
    authorizedKeys: `${runDir}/authorized_keys`,
    gatewaySettings: `${runDir}/gateway.json`,
    ownGatewayDir: `${runDir}/own-gateway`,
    ownGateway: `${runDir}/own-gateway/gateway.json`,
    gatewayRecord: `${runDir}/gateway-process.json`,
    sshdEnvironment: `${runDir}/sshd_environment.conf`,
    claimRecord: `${runDir}/claim.json`,
    receipt: `${runDir}/receipt.json`,
    lockoutSocket: `${runDir}/lockout.sock`,
    networkRecord: `${runDir}/network.json`,
    sshdRecord: `${runDir}/sshd.json`,
    sshdRunDir: `${root}/run/sshd`,
    caBundle: `${root}/etc/ssl/certs/ca-certificates.crt`,
    motd: `${root}/etc/motd`,
    hosts: `${root}/etc/hosts`,
    hostname: `${root}/etc/hostname`,
    kernelHostname: `${root}/proc/sys/kernel/hostname`,
    resolvConf: `${root}/etc/resolv.conf`,
    loginHome: `${root}/home/agent`,
    gatewayKey: `${root}/home/agent/.config/opencode/inference.key`,
    bootId: `${root}/proc/sys/kernel/random/boot_id`,
    interfaces: `${root}/sys/class/net`,
    virtioPorts: `${root}/sys/class/virtio-ports`,
    devices: `${root}/dev`,
    devicesReady: `${runDir}/ready`,
    tsmReports: `${root}/sys/kernel/config/tsm/report`,
    sevGuest: `${root}/dev/sev-guest`,
    tpm: `${root}/dev/tpmrm0`,
    tpmSocket: `${runDir}/tpm.sock`,
    commandLine: `${root}/proc/cmdline`,
    imageFile: `${root}/usr/lib/strongroom/image.json`,
    logDir: `${runDir}/log`,
  }
}
