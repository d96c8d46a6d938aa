package plan

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/explain"
)

// SnapshotController is what a workload serves that runs Kubernetes' snapshot-controller, which works for all CSI drivers.
const SnapshotController = "snapshot-controller"

// role is what a container is for.
type role string

const (
	unknownRole role = ""
	driverRole  role = "driver" // a program that is the CSI driver, perhaps of several names
	sidecarRole role = "sidecar"
	controllers role = SnapshotController
)

// service is what one container of a workload serves.
type service struct {
	role    role
	drivers []string // CSI driver names, sorted; of the program of a driver that doesn't tell, none
}

// only says whether the container serves the driver and nothing else.
func (s service) only(driver string) bool {
	return len(s.drivers) == 1 && s.drivers[0] == driver
}

// vague says whether it is the program of a driver, and nothing tells of which.
func (s service) vague() bool { return s.role == driverRole && len(s.drivers) == 0 }

const alibabaSuffix = "plugin.csi.alibabacloud.com"

var (
	// driverName is a name of one of Alibaba Cloud's CSI drivers in a path or an argument. What the program of several puts in the place
	// of each of them, driverplugin, is none.
	driverName = regexp.MustCompile(`[a-z0-9]+` + regexp.QuoteMeta(alibabaSuffix))
	// driverFlag is a flag that names drivers.
	driverFlag = regexp.MustCompile(`^--?(driver|drivers|driver-name|drivername|provisioner)(=(.*))?$`)
	// volumeOfOne is a name of a Pod's volume that holds one driver's socket.
	volumeOfOne = regexp.MustCompile(`^([a-z0-9]+)-(?:provisioner|plugin)-dir$`)

	driverImages  = []string{"csi-plugin", "alibaba-cloud-csi-driver", "topodisk"}
	sidecarImages = []string{"csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter", "csi-node-driver-registrar", "livenessprobe"}
)

// namesIn returns the CSI drivers that a text names.
func namesIn(text string) []string {
	names := driverName.FindAllString(text, -1)
	return slices.DeleteFunc(names, func(name string) bool { return name == "driver"+alibabaSuffix })
}

// servicesOf returns what each container of a Pod serves, in their order.
func servicesOf(pod *corev1.PodSpec) []service {
	services := make([]service, len(pod.Containers))
	for i := range pod.Containers {
		c := &pod.Containers[i]
		services[i].role = roleOf(c)
		services[i].drivers = flagged(c, services[i].role)
	}
	volumes := volumesOf(pod, services)
	for i := range pod.Containers {
		if s := &services[i]; len(s.drivers) == 0 && (s.role == driverRole || s.role == sidecarRole) {
			s.drivers = mounted(&pod.Containers[i], volumes)
		}
	}
	return services
}

// roleOf goes by the image's name, which mirrors keep, and by the flags that only CSI's programs have.
func roleOf(c *corev1.Container) role {
	image, _, _ := strings.Cut(c.Image, "@")
	image, _, _ = strings.Cut(path.Base(image), ":")
	line := slices.Concat(c.Command, c.Args)
	has := func(flag string) bool {
		return slices.ContainsFunc(line, func(word string) bool {
			return strings.HasPrefix("--"+strings.TrimLeft(word, "-"), flag) && strings.HasPrefix(word, "-")
		})
	}
	switch {
	case strings.HasSuffix(image, SnapshotController), strings.HasSuffix(c.Name, SnapshotController):
		return controllers
	case slices.Contains(driverImages, image), has("--endpoint=unix:") && (has("--driver") || has("--nodeid")):
		return driverRole
	case slices.Contains(sidecarImages, image), has("--csi-address"), has("--kubelet-registration-path"):
		return sidecarRole
	}
	return unknownRole
}

// flagged returns the drivers that the command line of one of CSI's programs names. Of another program a name says nothing: whoever
// watches a driver may name it, too.
func flagged(c *corev1.Container, as role) []string {
	if as != driverRole && as != sidecarRole {
		return nil
	}
	drivers := map[string]bool{}
	line := slices.Concat(c.Command, c.Args)
	for i, word := range line {
		for _, name := range namesIn(word) {
			drivers[name] = true
		}
		m := driverFlag.FindStringSubmatch(word)
		if m == nil {
			continue
		}
		value := m[3]
		if m[2] == "" && i+1 < len(line) {
			value = line[i+1]
		}
		for _, name := range strings.Split(value, ",") {
			if name = longName(strings.TrimSpace(name)); name != "" {
				drivers[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(drivers))
}

// longName returns a driver's name for what stands in a list of drivers: disk is short for the disk driver's name.
func longName(name string) string {
	if name == "" || strings.Contains(name, ".") {
		return name
	}
	return name + alibabaSuffix
}

// shortNames are the names of drivers as the flag --driver of Alibaba Cloud's drivers has them.
func shortNames(names []string) []string {
	short := make([]string, len(names))
	for i, name := range names {
		short[i] = strings.TrimSuffix(name, alibabaSuffix)
	}
	return short
}

// volumesOf returns which drivers' sockets the Pod's volumes hold.
func volumesOf(pod *corev1.PodSpec, services []service) map[string][]string {
	drivers := map[string][]string{}
	add := func(volume string, names ...string) {
		drivers[volume] = slices.Compact(slices.Sorted(slices.Values(append(drivers[volume], names...))))
	}
	shared := map[string]bool{} // the volumes that only containers see
	for i := range pod.Volumes {
		v := &pod.Volumes[i]
		shared[v.Name] = v.EmptyDir != nil
		if v.HostPath != nil {
			add(v.Name, namesIn(v.HostPath.Path)...)
		}
		if m := volumeOfOne.FindStringSubmatch(v.Name); m != nil {
			add(v.Name, m[1]+alibabaSuffix)
		}
	}
	for i := range pod.Containers {
		for _, mount := range pod.Containers[i].VolumeMounts {
			add(mount.Name, namesIn(mount.MountPath)...)
			if s := services[i]; shared[mount.Name] && s.role == driverRole && len(s.drivers) == 1 {
				add(mount.Name, s.drivers...)
			}
		}
	}
	return drivers
}

// mounted returns the drivers whose sockets a container mounts.
func mounted(c *corev1.Container, volumes map[string][]string) []string {
	var drivers []string
	for _, mount := range c.VolumeMounts {
		drivers = append(drivers, volumes[mount.Name]...)
	}
	slices.Sort(drivers)
	return slices.Compact(drivers)
}

// server is a workload that serves volumes or snapshots.
type server struct {
	*Workload
	services []service // of its containers, in their order
}

// servers returns the workloads that serve volumes or snapshots of any CSI driver, topodisk's own apart. What is scaled to 0 serves nothing.
func servers(f *Facts) (others, own []server) {
	for i := range f.Workloads {
		w := &f.Workloads[i]
		s := server{w, servicesOf(&w.Pod)}
		switch {
		case len(s.serves()) == 0 && !s.vague(), w.Kind != "DaemonSet" && w.Replicas == 0:
		case w.Labels["app.kubernetes.io/name"] == "topodisk", w.Labels["app.kubernetes.io/part-of"] == "topodisk": // with the chart's nameOverride
			own = append(own, s)
		default:
			others = append(others, s)
		}
	}
	return others, own
}

// serves returns what the workload serves: CSI drivers, and SnapshotController.
func (s *server) serves() []string {
	served := map[string]bool{}
	for _, service := range s.services {
		if service.role == controllers {
			served[SnapshotController] = true
		}
		for _, driver := range service.drivers {
			served[driver] = true
		}
	}
	return slices.Sorted(maps.Keys(served))
}

func (s *server) vague() bool { return slices.ContainsFunc(s.services, service.vague) }

// servesOnly says whether every container serves the driver and nothing else.
func (s *server) servesOnly(driver string) bool {
	return !slices.ContainsFunc(s.services, func(x service) bool { return !x.only(driver) })
}

// row is what the plan prints of the workload.
func (s *server) row() Serving {
	row := Serving{Object: s.ref(), Serves: s.serves(), ManagedBy: s.manager().String()}
	for i, service := range s.services {
		if service.role != unknownRole {
			row.Containers = append(row.Containers, s.Pod.Containers[i].Name)
			row.Images = append(row.Images, s.Pod.Containers[i].Image)
		}
	}
	slices.Sort(row.Images)
	row.Images = slices.Compact(row.Images)
	return row
}

// rowsOf are the CSIDriver objects of the driver and of Alibaba Cloud's other ones, and the workloads.
func rowsOf(f *Facts, servers []server) []Serving {
	var rows []Serving
	for i := range f.Drivers {
		d := &f.Drivers[i]
		if d.Name == f.Driver || strings.HasSuffix(d.Name, alibabaSuffix) {
			w := Workload{ObjectMeta: d.ObjectMeta}
			object := explain.Ref{Kind: "CSIDriver", Name: d.Name}
			rows = append(rows, Serving{Object: object, Serves: []string{d.Name}, ManagedBy: w.manager().String()})
		}
	}
	for i := range servers {
		rows = append(rows, servers[i].row())
	}
	return rows
}

// manager is what puts a workload back when it is changed by hand.
type manager struct {
	release, namespace string // of Helm
	chart              string // its name and version, as helm.sh/chart has them
	component          string // version of ACK's component
	label              string // another value of app.kubernetes.io/managed-by
}

func (w *Workload) manager() manager {
	m := manager{chart: w.Labels["helm.sh/chart"], component: w.Annotations["component.version"]}
	if by := w.Labels["app.kubernetes.io/managed-by"]; by == "Helm" {
		m.release, m.namespace = w.Annotations["meta.helm.sh/release-name"], w.Annotations["meta.helm.sh/release-namespace"]
	} else {
		m.label = by
	}
	if m.component == "" && w.Annotations["component.revision"] != "" {
		m.component = "of revision " + w.Annotations["component.revision"]
	}
	return m
}

func (m manager) String() string {
	switch {
	case m.release != "" && m.chart != "":
		return fmt.Sprintf("Helm release %s/%s, chart %s", m.namespace, m.release, m.chart)
	case m.release != "":
		return fmt.Sprintf("Helm release %s/%s", m.namespace, m.release)
	case m.component != "":
		return "ACK component " + m.component
	}
	return m.label
}
