// Package foreign has clients that are not topodisk's judge ecs-simulator and disk-driver, as they are shipped and with
// their default flags: csi-test's own program csi-sanity, the npm packages @alicloud/ecs20140526 and @alicloud/pop-core, and the
// Go SDK (gosdk). Its tests have the build tag foreign; `make test-foreign` runs them.
package foreign
