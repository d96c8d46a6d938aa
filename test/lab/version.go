package lab

import (
	"context"

	"github.com/topodisk/topodisk/test/lab/programs"
)

// UseVersion has those of topodisk's programs that are started from now on be of another version, with that version's flags, and
// returns the version before. What is installed, such as permissions, stays.
func (l *Lab) UseVersion(v programs.Earlier) (before programs.Earlier, err error) {
	install, err := readInstallation(v.Manifest)
	if err != nil {
		return before, err
	}
	before = programs.Earlier{Programs: l.opts.Programs.Topodisk, Manifest: l.Topodisk.install.path}
	l.opts.Programs.Topodisk, l.Topodisk.install = v.Programs, install
	return before, nil
}

// RestartController ends the driver, the provisioner and the sidecars, as all of them end with their Pod, and starts them again.
func (l *Lab) RestartController(ctx context.Context) error {
	for _, name := range append([]string{snapshotterName, ProvisionerName}, sidecarNames...) {
		l.Topodisk.Stop(name)
	}
	l.Topodisk.Stop(DriverProgram)
	if err := l.Topodisk.StartDriver(ctx, l.opts.DriverArgs...); err != nil {
		return err
	}
	if err := l.Topodisk.StartProvisioner(ctx, ProvisionerName, l.opts.ProvisionerArgs...); err != nil {
		return err
	}
	return l.startBesideDriver()
}
