package deletion

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/topodisk/topodisk/internal/unused"
)

// Driver is what deletion asks of the CSI driver.
type Driver interface {
	// DeleteVolume deletes a volume; deleting one that is gone is a success.
	DeleteVolume(ctx context.Context, in *csi.DeleteVolumeRequest, opts ...grpc.CallOption) (*csi.DeleteVolumeResponse, error)
}

// Deleter deletes volumes by calls to the driver.
type Deleter struct {
	client  kubernetes.Interface
	driver  Driver
	timeout time.Duration
}

// NewDeleter returns a Deleter whose calls to the driver end after the timeout.
func NewDeleter(client kubernetes.Interface, driver Driver, timeout time.Duration) *Deleter {
	return &Deleter{client: client, driver: driver, timeout: timeout}
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

// pageTimeout bounds the read of a page of PersistentVolumes, its wait for the client's rate limit included.
const pageTimeout = time.Minute

// DeleteUnowned deletes a volume for which no PersistentVolume was made, and which was never used if the driver can tell: see package
// unused. It returns an OwnedError if there is one all the same, of whatever driver: a disk's ID is unique.
// The API server is asked, page by page, because a cache may lack one that was made by
// hand a moment ago, and its data would be lost. progressed is called for every page.
func (d *Deleter) DeleteUnowned(ctx context.Context, id string, secrets map[string]string, progressed func()) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		progressed()
		ctx, cancel := context.WithTimeout(ctx, pageTimeout)
		defer cancel()
		return d.client.CoreV1().PersistentVolumes().List(ctx, o)
	})
	pages.PageBufferSize, pages.FullListIfExpired = 1, false // all at once may take more memory than there is
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if pv := object.(*v1.PersistentVolume); pv.Spec.CSI != nil && pv.Spec.CSI.VolumeHandle == id {
			return &OwnedError{pv.Name}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return d.delete(unused.Only(ctx), id, secrets)
}
