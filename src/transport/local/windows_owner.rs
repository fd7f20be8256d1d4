//! The owner of a process or a pipe on Windows, as needed by the local socket.
//!
//! It only reads and compares; it changes no permissions.

use std::ffi::c_void;
use std::fmt;
use std::io;
use std::mem::size_of;
use std::os::windows::io::{AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::HANDLE;
use windows_sys::Win32::Security::{
    GetKernelObjectSecurity, GetTokenInformation, OWNER_SECURITY_INFORMATION, TOKEN_QUERY, TOKEN_USER, TokenUser,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

/// A security identifier in the binary layout of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sid(Vec<u8>);

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (head, parts) = self.0.split_at(HEAD);
        let authority = head[2..].iter().fold(0_u64, |value, &byte| value << 8 | u64::from(byte));
        write!(f, "S-{}-{authority}", head[0])?;
        for part in parts.chunks_exact(size_of::<u32>()) {
            let part = part.iter().rev().fold(0_u32, |value, &byte| value << 8 | u32::from(byte));
            write!(f, "-{part}")?;
        }
        Ok(())
    }
}

impl Sid {
    /// Copies the identifier at offset `at` from a buffer that the system filled.
    fn copied(from: &[u8], at: usize) -> io::Result<Self> {
        let rest = from.get(at..).ok_or(io::ErrorKind::InvalidData)?;
        let parts = usize::from(*rest.get(1).ok_or(io::ErrorKind::InvalidData)?);
        let sid = rest.get(..HEAD + parts * size_of::<u32>()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self(sid.to_vec()))
    }
}

/// Returns the user that this process runs as.
pub(super) fn of_this_process() -> io::Result<Sid> {
    let token = token_of_this_process()?;
    let words = token_user(&token)?;
    let bytes = as_bytes(&words);
    // The structure starts with a pointer into the same buffer.
    let pointer = bytes.get(..size_of::<usize>()).and_then(|bytes| bytes.try_into().ok());
    let sid = usize::from_ne_bytes(pointer.ok_or(io::ErrorKind::InvalidData)?);
    Sid::copied(&bytes, sid.wrapping_sub(words.as_ptr().addr()))
}

/// Returns the owner of the object that `handle` refers to.
pub(super) fn of_object(handle: BorrowedHandle<'_>) -> io::Result<Sid> {
    let mut words = vec![0_u64; BUFFER_WORDS];
    let mut needed = 0;
    #[expect(unsafe_code, reason = "the system call has no safe form")]
    // SAFETY: the handle is open while it is borrowed, and the buffer has the given length.
    let done = unsafe {
        GetKernelObjectSecurity(
            handle.as_raw_handle() as HANDLE,
            OWNER_SECURITY_INFORMATION,
            words.as_mut_ptr().cast::<c_void>(),
            LENGTH,
            &mut needed,
        )
    };
    if done == 0 {
        return Err(io::Error::last_os_error());
    }
    // In a self-relative descriptor the owner's offset follows four bytes of revision and flags.
    let bytes = as_bytes(&words);
    let offset = bytes.get(4..8).and_then(|bytes| bytes.try_into().ok());
    let offset = u32::from_le_bytes(offset.ok_or(io::ErrorKind::InvalidData)?);
    Sid::copied(&bytes, usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidData)?)
}

fn token_of_this_process() -> io::Result<OwnedHandle> {
    let mut token: HANDLE = ptr::null_mut();
    #[expect(unsafe_code, reason = "the system call has no safe form")]
    // SAFETY: the pseudo handle of this process needs no closing, and the result goes to a live variable.
    let done = unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &mut token) };
    if done == 0 {
        return Err(io::Error::last_os_error());
    }
    #[expect(unsafe_code, reason = "a handle from the system is a bare pointer")]
    // SAFETY: the call succeeded, so the handle is open and has no other owner.
    let token = unsafe { OwnedHandle::from_raw_handle(token) };
    Ok(token)
}

fn token_user(token: &OwnedHandle) -> io::Result<Vec<u64>> {
    const { assert!(size_of::<TOKEN_USER>() < BUFFER_WORDS * size_of::<u64>()) }
    let mut words = vec![0_u64; BUFFER_WORDS];
    let mut needed = 0;
    #[expect(unsafe_code, reason = "the system call has no safe form")]
    // SAFETY: the token is open, and the buffer is aligned for a pointer and has the given length.
    let done = unsafe {
        GetTokenInformation(
            token.as_raw_handle() as HANDLE,
            TokenUser,
            words.as_mut_ptr().cast::<c_void>(),
            LENGTH,
            &mut needed,
        )
    };
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(words) }
}

fn as_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The bytes of an identifier before its sub-authorities: revision, count, authority.
const HEAD: usize = 8;

/// The buffer size in words: enough for any identifier (68 bytes) and its surrounding structure.
const BUFFER_WORDS: usize = 64;

/// The buffer size in bytes.
const LENGTH: u32 = 512;
