//! Listing of session files: the newest first, within limits.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::kernel::time::Now;

use super::session_path::{PROJECT_DIRECTORY, SessionPath};
use super::{MissingDirectory, OWN_DIRECTORY, RequiredOwner, Store, StoreError, name, os};
use crate::protocol::session_file::Header;
use crate::protocol::session_file::{FileSummary, summarize};

/// The limits of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListLimits {
    /// The number of directory entries that are inspected, in all directories together.
    pub names: usize,
    /// The number of files that are listed.
    pub files: usize,
    /// The number of bytes that are read.
    pub bytes: u64,
}

impl Default for ListLimits {
    fn default() -> Self {
        Self { names: 20_000, files: 500, bytes: 256 << 20 }
    }
}

/// A session in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSession {
    /// The path of the file.
    pub path: PathBuf,
    /// The header of the file.
    pub header: Header,
    /// Its name.
    pub name: Option<String>,
    /// The number of messages.
    pub messages: u64,
    /// The last provider and model.
    pub model: Option<(String, String)>,
    /// The last thinking level.
    pub thinking: Option<String>,
    /// When it was modified.
    pub modified: SystemTime,
}

/// A file that may contain a session; it has not been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The display name.
    pub name: String,
    /// When it was modified.
    pub modified: SystemTime,
}

/// A file that is not listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

/// The sessions that were found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// The sessions, the newest first.
    pub sessions: Vec<StoredSession>,
    /// The files that cannot be loaded.
    pub skipped: Vec<SkippedFile>,
    /// Whether older ones are not listed.
    pub more: bool,
}

impl Store {
    /// Finds the file of a session in the daemon's own directory by its name, whatever its working directory was.
    pub fn find(&self, id: &str, created: Now) -> Option<PathBuf> {
        let session_path = SessionPath::new(&self.home, OWN_DIRECTORY.iter().map(OsString::from).collect(), 0);
        let own = self.open_directory(&session_path, MissingDirectory::Fail).ok()?;
        let (folders, _) = own.names(self.list_limits.names).ok()?;
        let file = name::file_name(id, created);
        let holds = |directory: &OsString| {
            own.open_dir(directory, RequiredOwner::User)
                .is_ok_and(|directory| directory.check_file(OsStr::new(&file)).is_ok())
        };
        folders.iter().find(|directory| holds(directory)).map(|directory| self.directory().join(directory).join(&file))
    }

    /// Lists the sessions in the daemon's own directory, and in the projects at these directories.
    pub fn list(&self, cwds: &[PathBuf]) -> Listing {
        let mut builder = ListingBuilder::new(self.list_limits);
        self.add_own(&mut builder);
        for cwd in project_directories(cwds) {
            self.add_project(&cwd, &mut builder);
        }
        self.build_listing(builder)
    }

    /// Lists the session files of one working directory, the newest first.
    pub fn files(&self, cwd: &Path) -> Vec<SessionFile> {
        let mut builder = ListingBuilder::new(self.list_limits);
        let directory = name::directory_name(cwd);
        let names = OWN_DIRECTORY.iter().map(OsString::from).chain([directory.into()]).collect();
        self.add_directory(&SessionPath::new(&self.home, names, 0), &mut builder);
        for cwd in project_directories(&[cwd.to_owned()]) {
            self.add_project(&cwd, &mut builder);
        }
        builder.sort();
        builder.files.truncate(self.list_limits.files);
        builder.files
    }

    /// Adds the files in the daemon's own directory and in its subdirectories.
    fn add_own(&self, builder: &mut ListingBuilder) {
        let names: Vec<OsString> = OWN_DIRECTORY.iter().map(OsString::from).collect();
        let session_path = SessionPath::new(&self.home, names.clone(), 0);
        let Some(directory) = self.add_directory(&session_path, builder) else { return };
        let Some(found) = builder.read_names(&directory) else { return };
        for name in found {
            // Files were added already, and links are not followed.
            if let Ok(directory) = directory.open_dir(&name, super::RequiredOwner::User) {
                let path = self.directory().join(&name);
                builder.add_files(&directory, &path);
            }
        }
    }

    /// Adds the files of a project.
    fn add_project(&self, cwd: &Path, builder: &mut ListingBuilder) {
        let inner = PROJECT_DIRECTORY.iter().map(OsString::from).collect();
        self.add_directory(&SessionPath::new(cwd, inner, 0), builder);
    }

    /// Adds the files of one directory; a missing one has none.
    fn add_directory(&self, session_path: &SessionPath, builder: &mut ListingBuilder) -> Option<os::DirHandle> {
        let path = session_path.components.iter().fold(session_path.root.clone(), |path, name| path.join(name));
        match self.open_directory(session_path, MissingDirectory::Fail) {
            Ok(directory) => {
                builder.add_files(&directory, &path);
                Some(directory)
            }
            Err(StoreError::NotFound { .. }) => None,
            Err(error) => {
                builder.skipped.push(SkippedFile { path, reason: error.to_string() });
                None
            }
        }
    }

    /// Reads the files and builds the listing.
    fn build_listing(&self, mut builder: ListingBuilder) -> Listing {
        builder.sort();
        let ListingBuilder { files, skipped, more, limits, .. } = builder;
        let mut listing = Listing { sessions: Vec::new(), skipped, more };
        let mut bytes_left = limits.bytes;
        for file in files {
            if listing.sessions.len() == limits.files || bytes_left == 0 {
                listing.more = true;
                break;
            }
            let read = self.read_bytes(&file.path).and_then(|bytes| {
                bytes_left = bytes_left.saturating_sub(bytes.len() as u64);
                summarize(&bytes, &self.limits)
                    .map_err(|source| StoreError::Malformed { path: file.path.clone(), source })
            });
            match read {
                Ok(FileSummary { header, name, messages, model, thinking }) => listing.sessions.push(StoredSession {
                    path: file.path,
                    header,
                    name,
                    messages,
                    model,
                    thinking,
                    modified: file.modified,
                }),
                Err(error) if listing.skipped.len() < limits.files => {
                    listing.skipped.push(SkippedFile { path: file.path, reason: error.to_string() });
                }
                Err(_) => listing.more = true,
            }
        }
        listing
    }
}

/// Returns the directories without symbolic links, each once.
fn project_directories(cwds: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for cwd in cwds {
        // A missing directory has no files.
        if let Ok(real) = cwd.canonicalize()
            && !found.contains(&real)
        {
            found.push(real);
        }
    }
    found
}

/// The files that were found so far.
struct ListingBuilder {
    files: Vec<SessionFile>,
    skipped: Vec<SkippedFile>,
    more: bool,
    limits: ListLimits,
    /// The number of entries that may still be inspected.
    names_left: usize,
}

impl ListingBuilder {
    const fn new(limits: ListLimits) -> Self {
        Self { files: Vec::new(), skipped: Vec::new(), more: false, limits, names_left: limits.names }
    }

    fn read_names(&mut self, directory: &os::DirHandle) -> Option<Vec<OsString>> {
        let (names, more) = directory.names(self.names_left).ok()?;
        self.names_left -= names.len();
        self.more |= more;
        Some(names)
    }

    /// Adds the session files of a directory.
    fn add_files(&mut self, directory: &os::DirHandle, path: &Path) {
        let Some(names) = self.read_names(directory) else { return };
        for name in names.iter().filter(|name| is_session_file(name)) {
            let path = path.join(name);
            match directory.modified(name) {
                Ok(modified) => {
                    let name = name.to_string_lossy().into_owned();
                    self.files.push(SessionFile { path, name, modified });
                }
                // The file was removed meanwhile.
                Err(super::OpenError::NotFound) => {}
                Err(error) => {
                    let reason = error.into_store_error("read", &path).to_string();
                    if self.skipped.len() < self.limits.files {
                        self.skipped.push(SkippedFile { path, reason });
                    }
                }
            }
        }
    }

    /// Sorts by modification time, the newest first, then by path.
    fn sort(&mut self) {
        self.files.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.path.cmp(&b.path)));
        self.files.dedup_by(|a, b| a.path == b.path);
    }
}

/// Returns whether a name is that of a session file.
fn is_session_file(name: &OsStr) -> bool {
    let name = Path::new(name);
    let known = name.extension().is_some_and(|ending| ending == "jsonl" || ending == "json");
    known && !name.as_os_str().as_encoded_bytes().starts_with(b".")
}
