//go:build e2einstall

package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// desk is where a reader of the documentation types its commands: it has the release's chart, the checkout's deploy, the
// files of the access key, and in bin kubectl and helm.
var desk string

// labValues are what helm install is told on the desk besides the page's own settings. File systems are XFS, which grow while
// they are mounted on machines without CAP_SYS_RESOURCE, too.
func labValues(ecs string) string {
	return fmt.Sprintf(`ecsEndpoint: %q
csiSnapshotter: {enabled: true, featureGates: CSIVolumeGroupSnapshot=true}
storageClasses: [{name: %s, parameters: {type: cloud_essd, csi.storage.k8s.io/fstype: xfs}}]
`, ecs, className)
}

// helmOnDesk is helm, which install tells the values of the lab.
const helmOnDesk = `#!/bin/sh
verb=$1
shift
[ "$verb" != install ] || set -- --values=%s "$@"
exec %s "$verb" "$@"
`

func makeDesk() error {
	desk = filepath.Join(cluster.Dir, "desk")
	bin, values := filepath.Join(desk, "bin"), filepath.Join(cluster.Dir, "lab-values.yaml")
	return errors.Join(
		os.MkdirAll(bin, 0o755),
		os.Symlink(filepath.Dir(chartDir()), filepath.Join(desk, "charts")),
		os.Symlink(filepath.Join(root, "deploy"), filepath.Join(desk, "deploy")),
		os.Symlink(cluster.Kubectl, filepath.Join(bin, "kubectl")),
		os.Symlink(built("kubectl-topodisk"), filepath.Join(bin, "kubectl-topodisk")),
		os.WriteFile(filepath.Join(bin, "helm"), fmt.Appendf(nil, helmOnDesk, values, helm), 0o755),
		os.WriteFile(values, []byte(labValues(cluster.Simulator.URL)), 0o644),
	)
}

// layKey puts the files of an access key on the desk.
func (s *scene) layKey(id, secret string) {
	s.Helper()
	s.Must(os.WriteFile(filepath.Join(desk, "access-key-id"), []byte(id), 0o600))
	s.Must(os.WriteFile(filepath.Join(desk, "access-key-secret"), []byte(secret), 0o600))
}

// block is a block of commands that says that these tests run it.
var block = regexp.MustCompile("(?m)^<!-- run by make e2e-install -->\n```sh\n((?s:.*?))^```$")

// followed are the blocks that were run.
var followed = map[string]bool{}

// follow runs, as it stands, the block of a page that has these words, and returns what it says.
func (s *scene) follow(page, words string) string {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	s.Must(err)
	for _, match := range block.FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(match[1], words) {
			followed[match[1]] = true
			said, err := s.run(s.Context(), "/bin/sh", "-ec", match[1])
			s.Must(err)
			return said
		}
	}
	s.Fatalf("%s has no block with %q that says that make e2e-install runs it", page, words)
	return ""
}

// hasFollowedEveryPage sees that no page says of a block that these tests run it, and they don't.
func (s *scene) hasFollowedEveryPage() {
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/zh/*.md", "charts/topodisk/*.md"} {
		pages, err := filepath.Glob(filepath.Join(root, pattern))
		s.Must(err)
		for _, page := range pages {
			text, err := os.ReadFile(page)
			s.Must(err)
			for _, match := range block.FindAllStringSubmatch(string(text), -1) {
				if !followed[match[1]] {
					s.Errorf("%s says that these tests run what they don't:\n%s", page, match[1])
				}
			}
		}
	}
}
