// The package's entry `report`: an SNP report as a value, for programs that show one. Verifies nothing. Pure.

export { Malformed } from '../../attest/malformed.ts'
export { decodeReport, type SnpReport } from '../../attest/report/report.ts'
