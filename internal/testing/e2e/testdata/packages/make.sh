#!/bin/sh
# Run as root in a sandbox of the image agbox-packages:dev. Fills /art with a Debian package, a dnf repository, and a
# Python sdist and wheel. The system packages have what an installer needs privileges for: files of another owner, a setuid
# program, a file capability, and scripts that create a user.
set -eu
cd "$(mktemp -d)"

mkdir -p deb/DEBIAN deb/usr/bin deb/var/games/agbox-deb
cp /usr/bin/id deb/usr/bin/agbox-deb-id
cp /bin/cat deb/usr/bin/agbox-deb-cat
chmod 4755 deb/usr/bin/agbox-deb-id
chown games:games deb/var/games/agbox-deb
chmod 2750 deb/var/games/agbox-deb
cat >deb/DEBIAN/control <<'END'
Package: agbox-deb
Version: 1
Architecture: all
Maintainer: agbox <agbox@example.com>
Description: a package that needs privileges
END
cat >deb/DEBIAN/postinst <<'END'
#!/bin/sh
set -e
adduser --quiet --system --group --no-create-home --home /var/lib/agbox-deb agboxdeb
install -d -o agboxdeb -g agboxdeb -m 0750 /var/lib/agbox-deb
setcap cap_net_bind_service=ep /usr/bin/agbox-deb-cat
END
cat >deb/DEBIAN/postrm <<'END'
#!/bin/sh
set -e
[ "$1" = purge ] || exit 0
rm -rf /var/lib/agbox-deb
deluser --quiet --system agboxdeb
END
chmod 0755 deb/DEBIAN/postinst deb/DEBIAN/postrm
dpkg-deb --build deb /art/agbox.deb

# rpm asks for a package that provides /bin/sh; dnf finds it in the same repository.
cat >agbox.spec <<'END'
Name: agbox-rpm
Version: 1
Release: 1
Summary: a package that needs privileges
License: none
AutoReqProv: no
%description
%{summary}
%package -n agbox-shell
Summary: what scripts need
Provides: /bin/sh
AutoReqProv: no
%description -n agbox-shell
%{summary}
%install
mkdir -p %{buildroot}/usr/bin %{buildroot}/var/games/agbox-rpm
cp /usr/bin/id %{buildroot}/usr/bin/agbox-rpm-id
cp /bin/cat %{buildroot}/usr/bin/agbox-rpm-cat
%pre
useradd --system --user-group agboxrpm
%post
install -d -o agboxrpm -g agboxrpm -m 0750 /var/lib/agbox-rpm
%postun
rm -rf /var/lib/agbox-rpm
userdel agboxrpm
%files
%attr(4755,root,root) /usr/bin/agbox-rpm-id
%caps(cap_net_bind_service=ep) /usr/bin/agbox-rpm-cat
%attr(2750,games,games) %dir /var/games/agbox-rpm
%files -n agbox-shell
END
rpmbuild -bb --quiet --define "_topdir $PWD/rpm" --define 'debug_package %{nil}' --define '_build_id_links none' agbox.spec
mkdir /art/repo
cp rpm/RPMS/*/*.rpm /art/repo
createrepo_c --quiet /art/repo

mkdir py
cd py
printf 'def main():\n    print("installed by pip")\n' >agboxpip.py
cat >setup.py <<'END'
from setuptools import setup
setup(name="agboxpip", version="1", py_modules=["agboxpip"], entry_points={"console_scripts": ["agboxpip=agboxpip:main"]})
END
python3 setup.py --quiet sdist -d /art bdist_wheel -d /art
chmod -R a+rX /art
