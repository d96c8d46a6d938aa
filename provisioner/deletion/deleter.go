package deletion

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/topodisk/topodisk/provisioner/watch"
)

// Driver is what deletion asks of the CSI driver.
type Driver interface {
	// DeleteVolume deletes a volume; deleting one that is gone is a success.
	DeleteVolume(ctx context.Context, in *csi.DeleteVolumeRequest, opts ...grpc.CallOption) (*csi.DeleteVolumeResponse, error)
}

// Deleter deletes volumes by calls to the driver.
type Deleter struct {
	client  kubernetes.Interface
	volumes cache.Indexer
	driver  Driver
	timeout time.Duration
}

// NewDeleter returns a Deleter whose calls to the driver end after the timeout. Volumes are the PersistentVolumes, with
// watch.VolumeIndexers.
func NewDeleter(client kubernetes.Interface, volumes cache.Indexer, driver Driver, timeout time.Duration) *Deleter {
	return &Deleter{client: client, volumes: volumes, driver: driver, timeout: timeout}
}

func (d *Deleter) delete(ctx context.Context, id string, secrets map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	_, err := d.driver.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id, Secrets: secrets})
	return err
}

// OwnedError says that a volume is kept because a PersistentVolume stands for it.
type OwnedError struct{ PersistentVolume string }

// Error names the PersistentVolume.
func (e *OwnedError) Error() string {
	return fmt.Sprintf("PersistentVolume %s stands for it", e.PersistentVolume)
}

// DeleteUnowned deletes a volume for which no PersistentVolume was made. It returns an
// OwnedError if there is one all the same, of whatever driver: a disk's ID is unique.
// One that a provisioner has just saved has one of the names and is read from the API
// server; the cache shows those that others have made.
func (d *Deleter) DeleteUnowned(ctx context.Context, id string, names []string, secrets map[string]string) error {
	owners, err := watch.VolumesOfHandle(d.volumes, id)
	if err != nil {
		return err
	}
	if len(owners) > 0 {
		return &OwnedError{owners[0].Name}
	}
	for _, name := range names {
		pv, err := d.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return err
		case pv.Spec.CSI != nil && pv.Spec.CSI.VolumeHandle == id:
			return &OwnedError{pv.Name}
		}
	}
	return d.delete(ctx, id, secrets)
}
