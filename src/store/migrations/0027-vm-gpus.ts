// Schema 27: GPUs of this host that a VM gets whole, by PCI address.

export const vmGpus = {
  to: 27,
  sql: `
ALTER TABLE vms ADD COLUMN gpus TEXT;
`,
}
