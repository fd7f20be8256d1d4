//! Listing of session files: the newest first, within limits.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::kernel::time::Now;

use super::allowed::{PROJECT, Way};
use super::{Missing, OWN, Owner, Store, StoreError, name, os};
use crate::protocol::pi::session_file::Header;
use crate::protocol::pi::session_file::{Summary, summary};

/// The limits of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The number of directory entries that are inspected, in all directories together.
    pub names: usize,
    /// The number of files that are listed.
    pub files: usize,
    /// The number of bytes that are read.
    pub bytes: u64,
}

impl Default for Bounds {
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
pub struct Skipped {
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
    pub skipped: Vec<Skipped>,
    /// Whether older ones are not listed.
    pub more: bool,
}

impl Store {
    /// Finds the file of a session in the daemon's own directory by its name, whatever its working directory was.
    pub fn find(&self, id: &str, created: Now) -> Option<PathBuf> {
        let way = Way::new(&self.home, OWN.iter().map(OsString::from).collect(), 0);
        let own = self.walk(&way, Missing::Refused).ok()?;
        let (folders, _) = own.names(self.bounds.names).ok()?;
        let file = name::file(id, created);
        let holds = |folder: &OsString| {
            own.folder(folder, Owner::User).is_ok_and(|folder| folder.look(OsStr::new(&file)).is_ok())
        };
        folders.iter().find(|folder| holds(folder)).map(|folder| self.directory().join(folder).join(&file))
    }

    /// Lists the sessions in the daemon's own directory, and in the projects at these directories.
    pub fn list(&self, cwds: &[PathBuf]) -> Listing {
        let mut gathered = Gathered::new(self.bounds);
        self.own(&mut gathered);
        for cwd in projects(cwds) {
            self.project(&cwd, &mut gathered);
        }
        self.summed_up(gathered)
    }

    /// Lists the session files of one working directory, the newest first.
    pub fn files(&self, cwd: &Path) -> Vec<SessionFile> {
        let mut gathered = Gathered::new(self.bounds);
        let folder = name::folder(cwd);
        let names = OWN.iter().map(OsString::from).chain([folder.into()]).collect();
        self.directory_of(&Way::new(&self.home, names, 0), &mut gathered);
        for cwd in projects(&[cwd.to_owned()]) {
            self.project(&cwd, &mut gathered);
        }
        gathered.sorted();
        gathered.files.truncate(self.bounds.files);
        gathered.files
    }

    /// Adds the files in the daemon's own directory and in its subdirectories.
    fn own(&self, gathered: &mut Gathered) {
        let names: Vec<OsString> = OWN.iter().map(OsString::from).collect();
        let way = Way::new(&self.home, names.clone(), 0);
        let Some(folder) = self.directory_of(&way, gathered) else { return };
        let Some(found) = gathered.names(&folder) else { return };
        for name in found {
            // Files were added already, and links are not followed.
            if let Ok(folder) = folder.folder(&name, super::Owner::User) {
                let path = self.directory().join(&name);
                gathered.take(&folder, &path);
            }
        }
    }

    /// Adds the files of a project.
    fn project(&self, cwd: &Path, gathered: &mut Gathered) {
        let inner = PROJECT.iter().map(OsString::from).collect();
        self.directory_of(&Way::new(cwd, inner, 0), gathered);
    }

    /// Adds the files of one directory; a missing one has none.
    fn directory_of(&self, way: &Way, gathered: &mut Gathered) -> Option<os::Folder> {
        let path = way.names.iter().fold(way.root.clone(), |path, name| path.join(name));
        match self.walk(way, Missing::Refused) {
            Ok(folder) => {
                gathered.take(&folder, &path);
                Some(folder)
            }
            Err(StoreError::NotFound { .. }) => None,
            Err(error) => {
                gathered.skipped.push(Skipped { path, reason: error.to_string() });
                None
            }
        }
    }

    /// Reads the files and builds the listing.
    fn summed_up(&self, mut gathered: Gathered) -> Listing {
        gathered.sorted();
        let Gathered { files, skipped, more, bounds, .. } = gathered;
        let mut listing = Listing { sessions: Vec::new(), skipped, more };
        let mut room = bounds.bytes;
        for file in files {
            if listing.sessions.len() == bounds.files || room == 0 {
                listing.more = true;
                break;
            }
            let read = self.bytes(&file.path).and_then(|bytes| {
                room = room.saturating_sub(bytes.len() as u64);
                summary(&bytes, &self.limits)
                    .map_err(|source| StoreError::Malformed { path: file.path.clone(), source })
            });
            match read {
                Ok(Summary { header, name, messages, model, thinking }) => {
                    listing.sessions.push(StoredSession {
                        path: file.path,
                        header,
                        name,
                        messages,
                        model,
                        thinking,
                        modified: file.modified,
                    })
                }
                Err(error) if listing.skipped.len() < bounds.files => {
                    listing.skipped.push(Skipped { path: file.path, reason: error.to_string() });
                }
                Err(_) => listing.more = true,
            }
        }
        listing
    }
}

/// Returns the directories without symbolic links, each once.
fn projects(cwds: &[PathBuf]) -> Vec<PathBuf> {
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
struct Gathered {
    files: Vec<SessionFile>,
    skipped: Vec<Skipped>,
    more: bool,
    bounds: Bounds,
    /// The number of entries that may still be inspected.
    names: usize,
}

impl Gathered {
    const fn new(bounds: Bounds) -> Self {
        Self { files: Vec::new(), skipped: Vec::new(), more: false, bounds, names: bounds.names }
    }

    fn names(&mut self, folder: &os::Folder) -> Option<Vec<OsString>> {
        let (names, more) = folder.names(self.names).ok()?;
        self.names -= names.len();
        self.more |= more;
        Some(names)
    }

    /// Adds the session files of a directory.
    fn take(&mut self, folder: &os::Folder, path: &Path) {
        let Some(names) = self.names(folder) else { return };
        for name in names.iter().filter(|name| is_session(name)) {
            let path = path.join(name);
            match folder.modified(name) {
                Ok(modified) => {
                    let name = name.to_string_lossy().into_owned();
                    self.files.push(SessionFile { path, name, modified });
                }
                // The file was removed meanwhile.
                Err(super::Denied::NotFound) => {}
                Err(denied) => {
                    let reason = denied.named("read", &path).to_string();
                    if self.skipped.len() < self.bounds.files {
                        self.skipped.push(Skipped { path, reason });
                    }
                }
            }
        }
    }

    /// Sorts by modification time, the newest first, then by path.
    fn sorted(&mut self) {
        self.files.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.path.cmp(&b.path)));
        self.files.dedup_by(|a, b| a.path == b.path);
    }
}

/// Returns whether a name is that of a session file.
fn is_session(name: &OsStr) -> bool {
    let name = Path::new(name);
    let known = name.extension().is_some_and(|ending| ending == "jsonl" || ending == "json");
    known && !name.as_os_str().as_encoded_bytes().starts_with(b".")
}
