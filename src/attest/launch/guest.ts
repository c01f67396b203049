// Launch settings of all our VMs, for every image and shape. Pure.

/** SEV-SNP guest policy: bit 17 must be one, bit 16 allows SMT (AMD 56860, table 10). No debugging, no migration. */
export const guestPolicy = 0x30000n
/** SEV_FEATURES of a plain SEV-SNP guest: only bit 0, SNP itself. */
export const guestFeatures = 1n
/** The program that lays out the VM's memory; part of a digest's name. */
export const launchProfile = 'qemu-kvm'
