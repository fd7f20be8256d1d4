//! The credential manager of Windows.

use std::path::Path;
use std::ptr;

use windows_sys::Win32::Foundation::{ERROR_NOT_FOUND, GetLastError};
use windows_sys::Win32::Security::Credentials::{
    CRED_PERSIST_LOCAL_MACHINE, CRED_TYPE_GENERIC, CREDENTIALW, CredFree, CredReadW, CredWriteW,
};

/// Queries the credential manager.
pub(super) async fn find(_program: Option<&Path>, provider: &str) -> Result<Option<String>, String> {
    let name = wide(&format!("push/{provider}"));
    let mut found: *mut CREDENTIALW = ptr::null_mut();
    // SAFETY: `name` ends with a zero and outlives the call; `found` is set to a credential only on success.
    #[expect(unsafe_code, reason = "the credential manager has no safe interface")]
    let read = unsafe { CredReadW(name.as_ptr(), CRED_TYPE_GENERIC, 0, &raw mut found) };
    if read == 0 {
        let error = last_error();
        return if error == ERROR_NOT_FOUND { Ok(None) } else { Err(format!("system error {error}")) };
    }
    // SAFETY: `found` was set by a successful call and is freed once, after its bytes were copied.
    #[expect(unsafe_code, reason = "the credential belongs to the system until it is freed")]
    let bytes = unsafe {
        let credential = &*found;
        let bytes = if credential.CredentialBlob.is_null() {
            Vec::new()
        } else {
            std::slice::from_raw_parts(credential.CredentialBlob, credential.CredentialBlobSize as usize).to_vec()
        };
        CredFree(found.cast());
        bytes
    };
    String::from_utf8(bytes).map(Some).map_err(|_| "the key is not UTF-8".to_owned())
}

/// Stores a key in the credential manager.
pub(super) async fn store(_program: Option<&Path>, provider: &str, key: &str) -> Result<(), String> {
    let mut name = wide(&format!("push/{provider}"));
    let mut user = wide(provider);
    let mut secret = key.as_bytes().to_vec();
    let size = u32::try_from(secret.len()).map_err(|_| "the key is too long".to_owned())?;
    let credential = CREDENTIALW {
        Type: CRED_TYPE_GENERIC,
        TargetName: name.as_mut_ptr(),
        UserName: user.as_mut_ptr(),
        CredentialBlob: secret.as_mut_ptr(),
        CredentialBlobSize: size,
        Persist: CRED_PERSIST_LOCAL_MACHINE,
        ..CREDENTIALW::default()
    };
    // SAFETY: all pointers lead to buffers that outlive the call, and the texts end with a zero.
    #[expect(unsafe_code, reason = "the credential manager has no safe interface")]
    let written = unsafe { CredWriteW(&raw const credential, 0) };
    if written == 0 { Err(format!("system error {}", last_error())) } else { Ok(()) }
}

fn last_error() -> u32 {
    // SAFETY: it reads a number of the calling thread.
    #[expect(unsafe_code, reason = "the error code of a failed call is read there")]
    unsafe {
        GetLastError()
    }
}

fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}
