package register

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"dmxfs/locks"
	"dmxfs/p2p/member"
)

// Link implements [Register].
//
// The source of the link stays until a look shows a view of its epoch: the
// machine tries the same link until it knows the outcome. It is written once.
// After an error it may be the view itself, by its second name, so it must
// not be written again.
func (d *Dir) Link(v *member.View, file []byte) error {
	dir, err := d.open(viewsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	d.sawView(len(file))
	temp := fmt.Sprintf("%s%s-%s", newPrefix, v.By.Peer, v.Nonce)
	d.mu.Lock()
	_, written := d.temps[temp]
	d.mu.Unlock()
	if !written {
		mode, err := d.fileMode()
		if err != nil {
			return err
		}
		if err := d.writeView(dir, temp, file, mode); err != nil {
			return err
		}
		d.mu.Lock()
		d.temps[temp] = v.Epoch
		d.mu.Unlock()
	}
	name := member.ViewName(v.Epoch)
	switch err := d.linkView(dir, temp, name); {
	case err == nil:
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%s: link %s/%s: %w", d.source, viewsDir, name, member.ErrExists)
	case errors.Is(err, unix.ENOENT): // somebody removed the source
		d.mu.Lock()
		delete(d.temps, temp)
		d.mu.Unlock()
		fallthrough
	default:
		return d.wrap("link", viewsDir+"/"+name, err)
	}
	d.forgetTemp(dir, temp)
	return d.syncDir(dir)
}

func linkIn(dir *os.File, from, to string) error {
	fd := int(dir.Fd())
	return ignoringEINTR(func() error { return unix.Linkat(fd, from, fd, to, 0) })
}

// syncDir makes the names in dir durable where that takes a call of its own.
func (d *Dir) syncDir(dir *os.File) error {
	err := ignoringEINTR(func() error { return unix.Fsync(int(dir.Fd())) })
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EBADF) {
		return d.wrap("sync", dir.Name(), err)
	}
	return nil
}

// forgetTemps removes the sources of links whose outcome a look has shown.
func (d *Dir) forgetTemps(dir *os.File, newest locks.Epoch) {
	d.mu.Lock()
	var over []string
	for temp, e := range d.temps {
		if e <= newest {
			over = append(over, temp)
		}
	}
	d.mu.Unlock()
	for _, temp := range over {
		d.forgetTemp(dir, temp)
	}
}

// forgetTemp removes one. A file that stays is removed by Prune, in a day.
func (d *Dir) forgetTemp(dir *os.File, temp string) {
	if d.remove(dir, temp) == nil {
		d.mu.Lock()
		delete(d.temps, temp)
		d.mu.Unlock()
	}
}

// linkNew makes a file of this content unless the name exists, in which case it
// reports false.
func (d *Dir) linkNew(dir *os.File, name string, data []byte, mode uint32) (bool, error) {
	temp := d.tempName("")
	if err := d.writeTemp(dir, temp, data, os.FileMode(mode)); err != nil {
		return false, err
	}
	defer d.remove(dir, temp)
	switch err := d.link(dir, temp, name); {
	case err == nil:
		return true, d.syncDir(dir)
	case errors.Is(err, unix.EEXIST):
		return false, nil
	default:
		return false, d.noLink(err)
	}
}

// probe checks that the storage can do what views rest on: a second link of a
// name must fail, and must not change what the first one made.
func (d *Dir) probe() error {
	dir, err := d.open(viewsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	mode, err := d.fileMode()
	if err != nil {
		return err
	}
	one, two, name := d.tempName("probe"), d.tempName("probe"), d.tempName("probe")
	for _, f := range []string{one, two, name} {
		d.remove(dir, f)
		defer d.remove(dir, f)
	}
	for _, f := range []string{one, two} {
		if err := d.writeTemp(dir, f, []byte(f), mode); err != nil {
			return err
		}
	}
	if err := d.link(dir, one, name); err != nil {
		return d.noLink(err)
	}
	if err := d.link(dir, two, name); !errors.Is(err, unix.EEXIST) {
		if err == nil {
			return fmt.Errorf("%s: %w: a link of a name that exists succeeds; dmxfs decides by such a link which hosts go on, and would not be safe here", d.source, ErrNoLink)
		}
		return d.noLink(err)
	}
	got, err := d.read(dir, name, 1024)
	if err == nil && !bytes.Equal(got, []byte(one)) {
		err = fmt.Errorf("%s: %w: a linked file has another content than its source", d.source, ErrNoLink)
	}
	return err
}

// noLink explains the error of a link.
func (d *Dir) noLink(err error) error {
	for _, e := range []unix.Errno{unix.EPERM, unix.ENOSYS, unix.EOPNOTSUPP, unix.EMLINK, unix.EXDEV, unix.EINVAL} {
		if errors.Is(err, e) {
			return d.noLinks(d.fsName(), err)
		}
	}
	return d.wrap("link", viewsDir, err)
}

// noLinks is the error of storage without hard links; kind is what it is, in
// brackets.
func (d *Dir) noLinks(kind string, err error) error {
	return &storageError{kind: ErrNoLink, err: err, text: fmt.Sprintf(
		"%s: this storage%s makes no hard links (link: %v); dmxfs decides by a link which hosts go on when some do not answer, so it cannot work here: "+
			"share the files by a storage that has them (NFS 4, CephFS, GlusterFS, MooseFS, sshfs)",
		d.source, kind, err)}
}

// fsName is the type of the storage in brackets, as far as it is known.
func (d *Dir) fsName() string {
	var st unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Fstatfs(d.root, &st) }); err != nil {
		return ""
	}
	if name := fsTypes[int64(st.Type)]; name != "" {
		return " (" + name + ")"
	}
	return fmt.Sprintf(" (file system type %#x)", st.Type)
}

var fsTypes = map[int64]string{
	unix.NFS_SUPER_MAGIC:       "NFS",
	unix.FUSE_SUPER_MAGIC:      "FUSE",
	unix.SMB2_SUPER_MAGIC:      "SMB",
	unix.CIFS_SUPER_MAGIC:      "SMB",
	unix.MSDOS_SUPER_MAGIC:     "FAT",
	unix.EXFAT_SUPER_MAGIC:     "exFAT",
	unix.CEPH_SUPER_MAGIC:      "CephFS",
	unix.OCFS2_SUPER_MAGIC:     "OCFS2",
	unix.EXT4_SUPER_MAGIC:      "ext4",
	unix.XFS_SUPER_MAGIC:       "XFS",
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	unix.TMPFS_MAGIC:           "tmpfs",
	unix.V9FS_MAGIC:            "9p",
	unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
}
