//! Runs the recorded command: as the user who called sudo, and held until the probes are attached.

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Why the command does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error("command not found: {0}")]
    NotFound(String),
    #[error(
        "cannot run {0}: the interpreter that it names (its first line, or its dynamic loader) is missing"
    )]
    NoInterpreter(String),
    #[error("cannot run {command}: {source}")]
    NotExecutable { command: String, source: io::Error },
    #[error("the command contains a zero byte")]
    ZeroByte,
    #[error("cannot start a process for the command: {0}")]
    Fork(#[source] io::Error),
    #[error(
        "SUDO_UID is {uid}, but that user cannot be looked up: {source}. Unset it to run the command as root"
    )]
    User { uid: libc::uid_t, source: io::Error },
    #[error(
        "SUDO_UID is {uid:?} and SUDO_GID is {gid:?}, which name no user: start the recorder with \
         sudo, or unset both to run the command as root"
    )]
    SudoVariables { uid: OsString, gid: OsString },
}

/// The user who called sudo.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) uid: libc::uid_t,
    pub(crate) gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
    name: OsString,
    home: OsString,
}

/// The command's process, which waits for [`Held::release`] before it becomes the command.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) pid: i32,
    command: String,
    go: OwnedFd,
    outcome: OwnedFd,
}

/// The user who called sudo, or `None` if nobody did.
pub(crate) fn sudo_user() -> Result<Option<User>, LaunchError> {
    let (uid, gid) = (std::env::var_os("SUDO_UID"), std::env::var_os("SUDO_GID"));
    // SAFETY: geteuid takes and returns numbers only.
    if (uid.is_none() && gid.is_none()) || unsafe { libc::geteuid() } != 0 {
        return Ok(None);
    }
    // The largest number is none: the system calls take it for "leave it as it is".
    let number = |value: &Option<OsString>| {
        let number: u32 = value.as_ref()?.to_str()?.parse().ok()?;
        (number != u32::MAX).then_some(number)
    };
    // Guessing would run the command as root.
    let (Some(uid), Some(gid)) = (number(&uid), number(&gid)) else {
        return Err(LaunchError::SudoVariables {
            uid: uid.unwrap_or_default(),
            gid: gid.unwrap_or_default(),
        });
    };
    if uid == 0 {
        return Ok(None);
    }
    look_up(uid, gid)
        .map(Some)
        .map_err(|source| LaunchError::User { uid, source })
}

fn look_up(uid: libc::uid_t, gid: libc::gid_t) -> io::Result<User> {
    let mut buffer = vec![0u8; 16 * 1024];
    // SAFETY: all zero is a valid passwd: null pointers and numbers.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the pointers are valid for the call, and the length is that of the buffer.
    let error = unsafe {
        libc::getpwuid_r(
            uid,
            &mut entry,
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            &mut found,
        )
    };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    if found.is_null() {
        return Err(io::Error::other("there is no such user"));
    }
    // SAFETY: getpwuid_r succeeded, so both are strings inside `buffer`, which is still there.
    let text = |pointer| unsafe { std::ffi::CStr::from_ptr(pointer) };
    let name = text(entry.pw_name);
    let mut groups = vec![0; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: `count` tells the room in `groups`; the name ends with a zero.
        let result =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
        groups.resize(count.max(0) as usize, 0);
        if result >= 0 {
            break;
        }
    }
    Ok(User {
        uid,
        gid,
        groups,
        name: OsString::from_vec(name.to_bytes().to_vec()),
        home: OsString::from_vec(text(entry.pw_dir).to_bytes().to_vec()),
    })
}

/// The command's environment: what sudo kept, with the names of the user it is for.
pub(crate) fn environment(user: Option<&User>) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<_> = std::env::vars_os().collect();
    if let Some(user) = user {
        let own = [
            ("HOME", &user.home),
            ("USER", &user.name),
            ("LOGNAME", &user.name),
        ];
        environment.retain(|(name, _)| own.iter().all(|(own, _)| name != own));
        environment.extend(own.map(|(name, value)| (name.into(), value.clone())));
    }
    environment
}

/// The file that a command name stands for, found as a shell would.
fn find_program(name: &OsStr, search_path: Option<&OsStr>) -> Result<PathBuf, LaunchError> {
    let display = || name.to_string_lossy().into_owned();
    if name.is_empty() {
        return Err(LaunchError::NotFound("its name is empty".to_owned()));
    }
    if name.as_bytes().contains(&b'/') {
        return match check_program(Path::new(name)) {
            Ok(()) => Ok(name.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(LaunchError::NotFound(display()))
            }
            Err(source) => Err(LaunchError::NotExecutable {
                command: display(),
                source,
            }),
        };
    }
    let mut refused = None;
    for folder in std::env::split_paths(search_path.unwrap_or(OsStr::new("/usr/bin:/bin"))) {
        let candidate = folder.join(name);
        match check_program(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused = Some(error),
            Err(_) => {}
        }
    }
    Err(match refused {
        Some(source) => LaunchError::NotExecutable {
            command: display(),
            source,
        },
        None => LaunchError::NotFound(display()),
    })
}

fn check_program(path: &Path) -> io::Result<()> {
    let metadata = path.metadata()?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

/// The program that a command will run, by the search path of its environment.
pub(crate) fn find_in(
    name: &OsStr,
    environment: &[(OsString, OsString)],
) -> Result<PathBuf, LaunchError> {
    let search_path = environment.iter().find(|(name, _)| name == "PATH");
    find_program(name, search_path.map(|(_, value)| value.as_os_str()))
}

/// Starts the process of a command. To be called while the recorder has one thread only.
pub(crate) fn hold(
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
    user: Option<&User>,
) -> Result<Held, LaunchError> {
    let program = find_in(&arguments[0], environment)?;
    let c_string = |text: &OsStr| CString::new(text.as_bytes()).map_err(|_| LaunchError::ZeroByte);
    let arguments_c = arguments
        .iter()
        .map(|text| c_string(text))
        .collect::<Result<Vec<_>, _>>()?;
    let environment_c = environment
        .iter()
        .map(|(name, value)| {
            let mut line = name.clone();
            line.push("=");
            line.push(value);
            c_string(&line)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let child = Child {
        name: c_string(program.file_name().unwrap_or_default())?,
        program: c_string(program.as_os_str())?,
        arguments: pointers(&arguments_c),
        environment: pointers(&environment_c),
        user,
    };
    let (go_read, go) = pipe().map_err(LaunchError::Fork)?;
    let (outcome, outcome_write) = pipe().map_err(LaunchError::Fork)?;
    // SAFETY: this process has one thread, so the child may go on as a copy of it; it only calls
    // what is safe after fork anyway.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(LaunchError::Fork(io::Error::last_os_error()));
    }
    if pid == 0 {
        // SAFETY: in the child, the descriptors are its own; the other ends must not stay open
        // here, or it would never learn that the recorder has died.
        unsafe {
            libc::close(go.as_raw_fd());
            libc::close(outcome.as_raw_fd());
        }
        child.become_command(go_read.as_raw_fd(), outcome_write.as_raw_fd());
    }
    Ok(Held {
        pid,
        command: arguments[0].to_string_lossy().into_owned(),
        go,
        outcome,
    })
}

impl Held {
    /// Lets the process become the command. Returns when it has, or could not.
    pub(crate) fn release(self) -> Result<(), LaunchError> {
        let mut errno = Vec::new();
        std::fs::File::from(self.go)
            .write_all(b"g")
            .and_then(|()| std::fs::File::from(self.outcome).read_to_end(&mut errno))
            .map_err(LaunchError::Fork)?;
        let Ok(errno) = <[u8; 4]>::try_from(errno) else {
            return Ok(()); // closed by exec
        };
        let source = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
        // The program itself was there before: what is missing now is its interpreter.
        if source.kind() == io::ErrorKind::NotFound {
            return Err(LaunchError::NoInterpreter(self.command));
        }
        Err(LaunchError::NotExecutable {
            command: self.command,
            source,
        })
    }
}

/// What the child needs, all made before the fork.
struct Child<'a> {
    name: CString,
    program: CString,
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    user: Option<&'a User>,
}

impl Child<'_> {
    fn become_command(&self, go: libc::c_int, outcome: libc::c_int) -> ! {
        // SAFETY: only system calls, on strings and lists that were made before the fork and end
        // with a zero and a null pointer; nothing allocates or locks.
        unsafe {
            libc::prctl(libc::PR_SET_NAME, self.name.as_ptr());
            let mut byte = 0u8;
            if libc::read(go, (&raw mut byte).cast(), 1) != 1 {
                libc::_exit(125); // the recorder gave up
            }
            let dropped = match self.user {
                Some(user) => {
                    libc::setgroups(user.groups.len(), user.groups.as_ptr()) == 0
                        && libc::setgid(user.gid) == 0
                        && libc::setuid(user.uid) == 0
                }
                None => true,
            };
            if dropped {
                // Rust programs ignore SIGPIPE; the command starts as a shell would start it.
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                let mut none: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&mut none);
                libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
                libc::execve(
                    self.program.as_ptr(),
                    self.arguments.as_ptr(),
                    self.environment.as_ptr(),
                );
            }
            let errno = (*libc::__errno_location()).to_ne_bytes();
            libc::write(outcome, errno.as_ptr().cast(), errno.len());
            libc::_exit(126)
        }
    }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|string| string.as_ptr())
        .chain([std::ptr::null()])
        .collect()
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for both ends.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both were just opened, and nobody else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tool");
        std::fs::write(&file, "").unwrap();
        let search = Some(folder.path().as_os_str());
        let mode =
            |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o644);
        assert!(matches!(
            find_program("tool".as_ref(), search),
            Err(LaunchError::NotExecutable { .. })
        ));
        mode(0o755);
        assert_eq!(find_program("tool".as_ref(), search).unwrap(), file);
        assert!(matches!(
            find_program("other".as_ref(), search),
            Err(LaunchError::NotFound(_))
        ));
        assert!(matches!(
            find_program("./missing/x".as_ref(), search),
            Err(LaunchError::NotFound(_))
        ));
        assert!(matches!(
            find_program(folder.path().as_os_str(), search),
            Err(LaunchError::NotExecutable { .. })
        ));
    }
}
