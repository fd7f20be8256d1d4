//! An SQLite VFS for the test disk, on top of the default one.
//!
//! It only records calls and injects faults. Locks, shared memory and memory maps are passed through.
#![allow(unsafe_code, reason = "SQLite takes a file layer as a table of C functions")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use rusqlite::ffi;

use super::{Failure, Kind, Op, Shared};

/// A registered VFS; it is unregistered when dropped.
pub(super) struct TestVfs {
    name: String,
    vfs: *mut ffi::sqlite3_vfs,
}

// SAFETY: only the register and unregister calls use the pointer, under SQLite's own lock.
unsafe impl Send for TestVfs {}
// SAFETY: as above; a shared reference exposes only the name.
unsafe impl Sync for TestVfs {}

impl TestVfs {
    /// Registers a VFS for `shared` under a unique name.
    pub(super) fn over(shared: &Arc<Shared>) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("pushd-disk-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        // Connections may outlive the registration, so this memory is never freed.
        let c_name = CString::new(name.as_str()).expect("a name").into_raw();
        // SAFETY: null asks for the default VFS, which lives as long as the process.
        let vfs = unsafe {
            assert_eq!(ffi::sqlite3_initialize(), ffi::SQLITE_OK);
            let real = ffi::sqlite3_vfs_find(ptr::null());
            assert!(!real.is_null(), "SQLite has a default layer");
            let under = Box::into_raw(Box::new(VfsData { real, shared: Arc::downgrade(shared) }));
            let own = c_int::try_from(mem::size_of::<Handle>()).expect("a small size");
            let vfs = ffi::sqlite3_vfs {
                szOsFile: own + (*real).szOsFile,
                pNext: ptr::null_mut(),
                zName: c_name,
                pAppData: under.cast(),
                xOpen: Some(open),
                xDelete: Some(delete),
                xAccess: Some(access),
                // The other functions are those of the real VFS, which ignores this argument.
                ..*real
            };
            let vfs = Box::into_raw(Box::new(vfs));
            assert_eq!(ffi::sqlite3_vfs_register(vfs, 0), ffi::SQLITE_OK);
            vfs
        };
        Self { name, vfs }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for TestVfs {
    fn drop(&mut self) {
        // SAFETY: it was registered by `over` and is never freed.
        unsafe { ffi::sqlite3_vfs_unregister(self.vfs) };
    }
}

/// The application data of the VFS.
struct VfsData {
    real: *mut ffi::sqlite3_vfs,
    shared: Weak<Shared>,
}

/// An open file: SQLite's header, our data, and behind it the file of the real VFS.
#[repr(C)]
struct Handle {
    head: ffi::sqlite3_file,
    open: *mut FileData,
}

/// Our data of an open file.
struct FileData {
    shared: Arc<Shared>,
    /// `None` for a temporary file, which is never found again.
    file: Option<usize>,
    /// Whether the first sync also syncs the directory, as the real VFS does for a new log.
    names: bool,
}

/// # Safety
/// `file` was opened by [`open`] and is not closed.
unsafe fn parts<'a>(file: *mut ffi::sqlite3_file) -> (&'a mut FileData, *mut ffi::sqlite3_file) {
    // SAFETY: SQLite allocated `szOsFile` bytes, so the real file follows the handle; its size is a multiple of
    // its alignment, which is that of a pointer. SQLite uses a file from one thread at a time.
    unsafe {
        let handle = file.cast::<Handle>();
        (&mut *(*handle).open, handle.add(1).cast())
    }
}

/// Calls a function of the real file.
macro_rules! below {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        let real: *mut ffi::sqlite3_file = $file;
        match (*(*real).pMethods).$method {
            Some(method) => method(real $(, $argument)*),
            None => ffi::SQLITE_NOTFOUND,
        }
    }};
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls with its own arguments: `vfs` is the one registered, `file` has `szOsFile` bytes, and
    // `name` is null or a path with its parameters in front of it, which is passed on unchanged.
    unsafe {
        (*file).pMethods = ptr::null();
        let under = &*(*vfs).pAppData.cast::<VfsData>();
        let Some(shared) = under.shared.upgrade() else { return ffi::SQLITE_CANTOPEN };
        let _turn = shared.begin_change();
        if shared.failure(Kind::Open).is_some() {
            return ffi::SQLITE_CANTOPEN;
        }
        let handle = file.cast::<Handle>();
        let real = handle.add(1).cast::<ffi::sqlite3_file>();
        (*real).pMethods = ptr::null();
        let Some(open) = (*under.real).xOpen else { return ffi::SQLITE_CANTOPEN };
        let code = open(under.real, name, real, flags, out);
        if code != ffi::SQLITE_OK {
            if !(*real).pMethods.is_null() {
                below!(real, xClose);
            }
            return code;
        }
        let number = (!name.is_null()).then(|| shared.file_number(&path(name)));
        let kind = ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL;
        let names = flags & ffi::SQLITE_OPEN_CREATE != 0 && flags & kind != 0;
        (*handle).open = Box::into_raw(Box::new(FileData { shared: Arc::clone(&shared), file: number, names }));
        (*handle).head.pMethods = &METHODS;
        code
    }
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: as in `open`.
    unsafe {
        let under = &*(*vfs).pAppData.cast::<VfsData>();
        let Some(shared) = under.shared.upgrade() else { return ffi::SQLITE_IOERR_DELETE };
        let _turn = shared.begin_change();
        if shared.failure(Kind::Delete).is_some() {
            return ffi::SQLITE_IOERR_DELETE;
        }
        let Some(delete) = (*under.real).xDelete else { return ffi::SQLITE_IOERR_DELETE };
        let code = delete(under.real, name, sync);
        if code == ffi::SQLITE_OK {
            shared.record_removed(&path(name));
            if sync & 1 != 0 {
                shared.record(Op::NamesSynced);
            }
        }
        code
    }
}

unsafe extern "C" fn access(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, flags: c_int, out: *mut c_int) -> c_int {
    // SAFETY: as in `open`.
    unsafe {
        let under = &*(*vfs).pAppData.cast::<VfsData>();
        if under.shared.upgrade().is_none_or(|shared| shared.failure(Kind::Access).is_some()) {
            return ffi::SQLITE_IOERR_ACCESS;
        }
        (*under.real).xAccess.map_or(ffi::SQLITE_IOERR_ACCESS, |access| access(under.real, name, flags, out))
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once; the data that `open` allocated is freed here.
    unsafe {
        let handle = file.cast::<Handle>();
        drop(Box::from_raw((*handle).open));
        (*handle).head.pMethods = ptr::null();
        below!(handle.add(1).cast(), xClose)
    }
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    into: *mut c_void,
    amount: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: the file is open; the buffer is SQLite's and is passed on unchanged.
    unsafe {
        let (open, real) = parts(file);
        if open.file.is_some() && open.shared.failure(Kind::Read).is_some() {
            return ffi::SQLITE_IOERR_READ;
        }
        below!(real, xRead, into, amount, at)
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    amount: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: the file is open; SQLite provides `amount` bytes at `from`, and no more than those are read.
    unsafe {
        let (open, real) = parts(file);
        let Some(number) = open.file else { return below!(real, xWrite, from, amount, at) };
        let _turn = open.shared.begin_change();
        let failure = open.shared.failure(Kind::Write);
        let kept = match failure {
            None => amount,
            Some(Failure::HalfFull) => amount / 2,
            Some(Failure::Broken | Failure::Full) => 0,
        };
        if kept > 0 {
            let code = below!(real, xWrite, from, kept, at);
            if code != ffi::SQLITE_OK {
                return code;
            }
            let bytes = std::slice::from_raw_parts(from.cast::<u8>(), usize::try_from(kept).expect("a size")).to_vec();
            let at = u64::try_from(at).expect("a position");
            open.shared.record(Op::Write { file: number, at, bytes });
        }
        match failure {
            None => ffi::SQLITE_OK,
            Some(Failure::Broken) => ffi::SQLITE_IOERR_WRITE,
            Some(Failure::Full | Failure::HalfFull) => ffi::SQLITE_FULL,
        }
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    // SAFETY: the file is open.
    unsafe {
        let (open, real) = parts(file);
        let Some(number) = open.file else { return below!(real, xTruncate, size) };
        let _turn = open.shared.begin_change();
        if open.shared.failure(Kind::Length).is_some() {
            return ffi::SQLITE_IOERR_TRUNCATE;
        }
        let code = below!(real, xTruncate, size);
        if code == ffi::SQLITE_OK {
            let len = u64::try_from(size).expect("a length");
            open.shared.record(Op::Length { file: number, len });
        }
        code
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: the file is open.
    unsafe {
        let (open, real) = parts(file);
        let Some(number) = open.file else { return below!(real, xSync, flags) };
        let turn = open.shared.begin_change();
        let begun = turn.begun;
        if open.shared.failure(Kind::Sync).is_some() {
            open.shared.record_failed_sync(number, begun);
            return ffi::SQLITE_IOERR_FSYNC;
        }
        let code = below!(real, xSync, flags);
        if code == ffi::SQLITE_OK {
            open.shared.record(Op::Synced { file: number, begun });
            if mem::take(&mut open.names) {
                open.shared.record(Op::NamesSynced);
            }
        }
        code
    }
}

unsafe extern "C" fn size(file: *mut ffi::sqlite3_file, out: *mut ffi::sqlite3_int64) -> c_int {
    // SAFETY: the file is open, and `out` is SQLite's.
    unsafe {
        let (open, real) = parts(file);
        if open.file.is_some() && open.shared.failure(Kind::Size).is_some() {
            return ffi::SQLITE_IOERR_FSTAT;
        }
        below!(real, xFileSize, out)
    }
}

/// Defines functions that pass a call through.
macro_rules! through {
    ($($name:ident = $method:ident($($argument:ident: $kind:ty),*);)*) => {$(
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file $(, $argument: $kind)*) -> c_int {
            // SAFETY: the file is open; the arguments are SQLite's own and belong to the real VFS.
            unsafe { below!(parts(file).1, $method $(, $argument)*) }
        }
    )*};
}

through! {
    lock = xLock(level: c_int);
    unlock = xUnlock(level: c_int);
    reserved = xCheckReservedLock(out: *mut c_int);
    control = xFileControl(op: c_int, argument: *mut c_void);
    sector = xSectorSize();
    traits = xDeviceCharacteristics();
    shm_map = xShmMap(page: c_int, size: c_int, extend: c_int, out: *mut *mut c_void);
    shm_lock = xShmLock(offset: c_int, count: c_int, flags: c_int);
    shm_unmap = xShmUnmap(delete: c_int);
    fetch = xFetch(at: ffi::sqlite3_int64, amount: c_int, out: *mut *mut c_void);
    unfetch = xUnfetch(at: ffi::sqlite3_int64, page: *mut c_void);
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: the file is open.
    unsafe {
        let real = parts(file).1;
        if let Some(barrier) = (*(*real).pMethods).xShmBarrier {
            barrier(real);
        }
    }
}

/// # Safety
/// `name` is a C string.
unsafe fn path(name: *const c_char) -> PathBuf {
    // SAFETY: the caller guarantees it.
    unsafe { CStr::from_ptr(name) }.to_str().expect("a readable path").into()
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 3,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector),
    xDeviceCharacteristics: Some(traits),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: Some(fetch),
    xUnfetch: Some(unfetch),
};
