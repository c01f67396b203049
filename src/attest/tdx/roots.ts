// The root of Intel's SGX and TDX attestation keys. Data, no code.
//
// Intel SGX Root CA, valid 2018-05-21 to 2049-12-31, as Intel serves it at
// https://certificates.trustedservices.intel.com/IntelSGXRootCA.der. Compared with the root at the end of the chains in
// real quotes and their collateral. Its fingerprint is pinned in test/attest/tdx/roots.test.ts.

/// <reference path="../encoding/pem.d.ts" />

import sgxRoot from './roots/sgx.pem' with { type: 'text' }

/** PEM. SHA-256 of its DER: 44a0196b2b99f889b8e149e95b807a350e7424964399e885a7cbb8ccfab674d3. */
export const INTEL_SGX_ROOT: string = sgxRoot
